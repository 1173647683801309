#include "model/weights/huggingface/architecture.hpp"

namespace paceline::huggingface {
namespace {

constexpr std::array kArchitectures = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kPhi3};

}  // namespace

const FolderArchitecture* find_architecture(std::string_view class_name,
                                            std::string_view model_type) {
    for (const FolderArchitecture* architecture : kArchitectures) {
        const bool same = class_name.empty() ? model_type == architecture->model_type
                                             : class_name == architecture->class_name;
        if (same) return architecture;
    }
    return nullptr;
}

std::string architecture_names() {
    std::string names;
    for (const FolderArchitecture* architecture : kArchitectures)
        names += (names.empty() ? "" : ", ") + std::string{architecture->class_name};
    return names;
}

}  // namespace paceline::huggingface
