// What this binary was built from and with. Constant data.
#pragma once

namespace paceline {

struct BuildInfo {
    const char* version;   // "0.1.0"
    const char* commit;    // of git, with "+" when the tree had changes; "unknown" without git
    const char* compiler;  // "GNU 12.2.0"
    const char* build_type;
};

[[nodiscard]] const BuildInfo& build_info();

}  // namespace paceline
