// What libgnomon.so exports for python/gnomon alone: no part of the C interface, and of one version with the package.
#pragma once

#define GNOMON_FOR_PYTHON extern "C" [[gnu::visibility("default")]]
