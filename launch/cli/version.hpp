// `paceline --version`: what this binary is and what it will run on.
#pragma once

#include <string>

namespace paceline {

/// Version, commit, compiler, instruction set of the kernels on this machine, CUDA.
[[nodiscard]] std::string version_text();

}  // namespace paceline
