# libgnomon.so (C ABI), the command line `gnomon`.
