/* Between the files of the view. */
#ifndef MESH_VIEW_VIEW_PRIV_H
#define MESH_VIEW_VIEW_PRIV_H

#include "view.h"

void peers_apply(struct mesh_view *v, mr_str id, mr_bytes value, int64_t revision,
                 struct view_change *out);
void peers_delete(struct mesh_view *v, mr_str id, int64_t revision, struct view_change *out);
void peers_unsee(struct mesh_view *v);
/** Puts the key of an instance that the reading has not seen; false: there is none. */
bool peers_unseen(const struct mesh_view *v, struct mr_buf *key);
void peers_fini(struct mesh_view *v);

void vmodels_apply(struct mesh_view *v, mr_str id, mr_bytes value, int64_t revision,
                   struct view_change *out);
void vmodels_delete(struct mesh_view *v, mr_str id, struct view_change *out);
void vmodels_unsee(struct mesh_view *v);
bool vmodels_unseen(const struct mesh_view *v, struct mr_buf *key);
void vmodels_fini(struct mesh_view *v);

#endif
