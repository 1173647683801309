#include "launch/base/environment.hpp"

namespace paceline {

std::string demo_model_path(const Environment& environment) {
    if (environment.cache_folder.empty()) return {};
    return environment.cache_folder + "/SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace paceline
