# What the program finds beside itself, and what `cmake --install` writes: the program, unchain::core (the layers up to
# library, with the public headers) as a CMake package, and Plotly.js.
include(CMakePackageConfigHelpers)

# Plotly.js for the page: build/PRESET/share/unchain for the program in the build folder, PREFIX/share/unchain installed.
# The copy is made at build time, since the file may be fetched after the first configuration.
if(UNCHAIN_PLOTLY AND NOT EXISTS "${UNCHAIN_PLOTLY}")
  message(FATAL_ERROR "UNCHAIN_PLOTLY: no file ${UNCHAIN_PLOTLY}; give the path of a plotly.min.js, or run tools/setup plotly and leave it empty")
endif()
set(plotly ${UNCHAIN_PLOTLY})
if(NOT plotly)
  set(plotly ${PROJECT_SOURCE_DIR}/.cache/plotly.min.js)
endif()
set(UNCHAIN_SHARE_DIR ${PROJECT_BINARY_DIR}/share/unchain)
add_custom_target(unchain_share ALL
  COMMAND ${CMAKE_COMMAND} -DFROM=${plotly} -DTO=${UNCHAIN_SHARE_DIR} -P ${PROJECT_SOURCE_DIR}/cmake/copy_if_there.cmake
  VERBATIM)
add_dependencies(unchain unchain_share)
install(FILES ${UNCHAIN_SHARE_DIR}/plotly.min.js DESTINATION ${CMAKE_INSTALL_DATADIR}/unchain OPTIONAL)

install(TARGETS unchain RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/unchain DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The layers that unchain::core is made of; find_package(unchain) gives them as unchain::NAME.
set(core_layers "")
foreach(layer base tensor simd formats tokenizer ops attention model analysis library)
  list(APPEND core_layers unchain_${layer})
  set_target_properties(unchain_${layer} PROPERTIES EXPORT_NAME ${layer})
endforeach()
set_target_properties(unchain_core PROPERTIES EXPORT_NAME core)
set_target_properties(unchain_options PROPERTIES EXPORT_NAME options)
set_target_properties(unchain_dnnl PROPERTIES EXPORT_NAME dnnl)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/unchain)
install(TARGETS unchain_core unchain_options unchain_dnnl ${core_layers} EXPORT unchainTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT unchainTargets NAMESPACE unchain:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/unchainConfig.cmake.in ${PROJECT_BINARY_DIR}/unchainConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/unchainConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/unchainConfig.cmake ${PROJECT_BINARY_DIR}/unchainConfigVersion.cmake DESTINATION ${package_dir})
