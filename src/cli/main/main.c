/* The entry point; everything is in the module, where tests reach it. */
#include <unistd.h>

#include "cli/common/cli.h"

int main(int argc, char **argv)
{
    return mr_cli_main(argc, argv, environ);
}
