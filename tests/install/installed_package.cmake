# cmake -DBUILD=FOLDER -DEXAMPLES=FOLDER -DWORK=FOLDER -P installed_package.cmake: installs a build, moves it, builds the
# examples against it with find_package(unchain) alone, and runs the installed program.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    string(REPLACE ";" " " command "${ARGN}")
    message(FATAL_ERROR "${command}: exit status ${status}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/prefix)  # nothing may remember where it was installed
run(${CMAKE_COMMAND} -S ${EXAMPLES} -B ${WORK}/examples -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/examples)
run(${WORK}/prefix/bin/unchain --version)
