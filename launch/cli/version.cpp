#include "launch/cli/version.hpp"

#include "launch/base/build_info.hpp"
#include "launch/load/gpu.hpp"
#include "model/kernels/cpu/isa.hpp"

namespace paceline {
std::string version_text() {
    const BuildInfo& build = build_info();
    std::string text = "paceline ";
    text += build.version;
    text += "\ncommit    ";
    text += build.commit;
    text += "\ncompiler  ";
    text += build.compiler;
    text += std::string{" ("} + build.build_type + ")";
    text += "\nCPU       ";
    text += name(best_isa());
    text += "\nCUDA      ";
    text += gpu_version_text();
    return text;
}

}  // namespace paceline
