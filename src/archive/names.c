#include "names.h"

locale_t names_begin(void)
{
    return uselocale(newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0));
}

void names_end(locale_t before)
{
    locale_t used = uselocale(before);

    if (used != before) { /* the same where the system has no such locale */
        freelocale(used);
    }
}

bool name_has_control(const char *name)
{
    for (; *name; name++) {
        if ((unsigned char)*name < 0x20 || *name == 0x7f) {
            return true;
        }
    }
    return false;
}
