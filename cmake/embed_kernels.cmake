# Writes a C++ file that holds the text of every kernel source: cmake -DOUTPUT=... -DFOLDER=... -P embed_kernels.cmake
file(GLOB files ${FOLDER}/*.cuh)
list(SORT files)
set(table "")
foreach(file IN LISTS files)
  get_filename_component(name ${file} NAME)
  file(READ ${file} text)
  string(APPEND table "    {\"${name}\", R\"gnomon~(${text})gnomon~\"},\n")
endforeach()
file(WRITE ${OUTPUT}.new "// Made by cmake/embed_kernels.cmake from src/cuda/kernels.\n#include \"cuda/kernel_sources.hpp\"\n\n\
namespace gnomon::cuda {\nnamespace {\n\nconstexpr SourceFile files[] = {\n${table}};\n\n}  // namespace\n\n\
std::span<const SourceFile> kernel_sources() { return files; }\n\n}  // namespace gnomon::cuda\n")
file(COPY_FILE ${OUTPUT}.new ${OUTPUT} ONLY_IF_DIFFERENT)
