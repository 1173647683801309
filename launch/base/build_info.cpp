#include "launch/base/build_info.hpp"

#include "launch/git_commit.inc"  // written by launch/git_commit.cmake at build time

namespace paceline {

const BuildInfo& build_info() {
    static constexpr BuildInfo kInfo{
        .version = PACELINE_VERSION,
        .commit = kGitCommit,
        .compiler = PACELINE_COMPILER,
        .build_type = PACELINE_BUILD_TYPE,
    };
    return kInfo;
}

}  // namespace paceline
