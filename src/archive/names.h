/* Names in archives are UTF-8, whatever the process's locale, which decides what libarchive makes of them. */
#ifndef MR_ARCHIVE_NAMES_H
#define MR_ARCHIVE_NAMES_H

#include <locale.h>
#include <stdbool.h>

/** libarchive reads and writes names as UTF-8 on this thread, until names_end gets what this returns. Names that are not
 *  UTF-8 are read as they are. */
locale_t names_begin(void);
void names_end(locale_t before);

/** Whether a name has control characters, which no archive's may have. */
bool name_has_control(const char *name);

#endif
