# SPDX-License-Identifier: Apache-2.0
# Included at the end of the top CMakeLists.txt: `cmake --install build/release --prefix WHERE`.
# Afterwards find_package(Vitrine) gives Vitrine::vitrine.
include(CMakePackageConfigHelpers)

set(vitrine_package ${CMAKE_INSTALL_LIBDIR}/cmake/Vitrine)

install(TARGETS vitrine EXPORT VitrineTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS vitrine_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vitrine DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/vitrine/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/vitrine)
install(FILES ${PROJECT_SOURCE_DIR}/bench/compare.py DESTINATION ${CMAKE_INSTALL_DATADIR}/vitrine/bench)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT VitrineTargets NAMESPACE Vitrine:: DESTINATION ${vitrine_package})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/VitrineConfig.cmake.in
  ${CMAKE_BINARY_DIR}/VitrineConfig.cmake INSTALL_DESTINATION ${vitrine_package}
  NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/VitrineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/VitrineConfig.cmake ${CMAKE_BINARY_DIR}/VitrineConfigVersion.cmake
  DESTINATION ${vitrine_package})
