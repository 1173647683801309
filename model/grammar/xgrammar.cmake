# The pinned version of xgrammar: fetch_xgrammar brings it, cmake/PacelineGrammar.cmake builds it.
set(PACELINE_XGRAMMAR_VERSION 0.2.8)
set(PACELINE_XGRAMMAR_SHA256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)
