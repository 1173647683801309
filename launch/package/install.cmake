# What `cmake --install` and the Debian package (cpack) hold: the program, which needs no checkout, the
# launcher of pipelines on GPUs, methods as files, trained parts, documentation, completion, manual page, and
# the server as a service of systemd.
include(GNUInstallDirs)

# As it is: its libraries are found beside it, else where the system has them.
install(PROGRAMS $<TARGET_FILE:paceline> DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS ${CMAKE_SOURCE_DIR}/launch/paceline-launch DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/configs ${CMAKE_SOURCE_DIR}/model/pretrained
    DESTINATION ${CMAKE_INSTALL_DATADIR}/paceline)
install(FILES ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${CMAKE_CURRENT_LIST_DIR}/completion.bash RENAME paceline
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/paceline.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_CURRENT_LIST_DIR}/paceline.service DESTINATION lib/systemd/system)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "Paceline")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Decodes large language models faster without changing one token")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
include(CPack)
