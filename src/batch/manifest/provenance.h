/* Whose answers the rows of an item are, as JSON in the manifest: {"versions":["1"],"rows":{"10.0.0.1:8000":1234}}.
 *
 * Where there are more hosts than a record has room for, "*" stands for all of them. Private. Thread: one at a time. */
#ifndef MR_BATCH_PROVENANCE_H
#define MR_BATCH_PROVENANCE_H

#include "base/buf.h"
#include "base/vec.h"

struct provenance_host {
    char *address; /* owned */
    uint64_t rows;
};

/** All zero is empty. */
struct provenance {
    MR_VEC(struct provenance_host) hosts;
    MR_VEC(char *) versions;
    size_t last; /* index of the host that was added last */
};

void provenance_fini(struct provenance *o);
void provenance_add(struct provenance *o, const char *address, uint64_t rows);
void provenance_version(struct provenance *o, mr_str version);
/** Adds what an item says. NULL, or what is no such JSON, says nothing. */
void provenance_read(struct provenance *o, const char *json);
/** NULL when there are no hosts; otherwise text that lives as long as *b. */
const char *provenance_json(const struct provenance *o, struct mr_buf *b);
/** May some rows of the item be of that host? Rows of items that do not say it may. */
bool provenance_may_be(const char *json, mr_str address);
/** How many may be, as far as it is said. */
uint64_t provenance_rows(const char *json, mr_str address);

#endif
