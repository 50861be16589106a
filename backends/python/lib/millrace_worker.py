"""The program of a worker process of a Python model: INTERPRETER millrace_worker.py MODEL PID-OF-THE-SERVER.

The server starts it. The worker itself is the module _millrace_worker beside this file; it loads the python backend,
which finds _millrace_host here."""
import atexit
import os
import sys


def main():
    import _millrace_worker

    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # the server logs what models print, line by line
    code = _millrace_worker.main(sys.argv)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            pass  # the server is gone
    os._exit(code)  # threads that the model has left running do not keep the process


if __name__ == "__main__":
    main()
