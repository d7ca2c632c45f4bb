# Writes the build id of device plugins: cmake -DOUTPUT=... -DROOT=... -DID=... -P build_id.cmake
# A hash of every header that crosses the border; ID names the version, the compiler and its flags.
file(GLOB headers ${ROOT}/src/core/*.hpp ${ROOT}/src/plan/*.hpp ${ROOT}/src/engine/device_*.hpp)
list(SORT headers)
set(all "${ID}")
foreach(header IN LISTS headers)
  file(SHA256 ${header} hash)
  string(APPEND all ${hash})
endforeach()
string(SHA256 hash "${all}")
string(SUBSTRING ${hash} 0 16 hash)
file(WRITE ${OUTPUT}.new "// Made by cmake/build_id.cmake.\n#include \"engine/device_plugin.hpp\"\n\n\
namespace gnomon {\n\nconst char* device_plugin_build_id() { return \"${ID} ${hash}\"; }\n\n}  // namespace gnomon\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
