#include "launch/base/environment.hpp"

namespace paceline {

std::string demo_model_path(const Environment& environment) {
    return environment.cache_folder + "/SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace paceline
