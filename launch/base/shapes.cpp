#include "launch/base/shapes.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

#include "launch/base/nearest_word.hpp"
#include "model/weights/synthetic/synthetic_model.hpp"

namespace paceline {
namespace {

struct Shape {
    std::string_view name;     // of its file without ".toml"
    std::string_view summary;  // the first line of the file, without the "# "
    std::string_view text;     // the file
};

constexpr auto kShapes = std::to_array<Shape>({
#include "launch/shapes.inc"
});

/// A word that looks like a path is one, also if nothing is there.
bool is_path(const std::string& config) {
    std::error_code ignored;
    return config.find('/') != std::string::npos || config.find('.') != std::string::npos ||
           std::filesystem::exists(config, ignored);
}

Error unknown(const std::string& config) {
    const std::vector<std::string_view> known = shape_names();
    return Error{Errc::BadArgument, "--random: '" + config +
                                        "' is neither a file nor a built-in shape" +
                                        known_text(config, known)};
}

}  // namespace

std::vector<std::string_view> shape_names() {
    std::vector<std::string_view> names;
    for (const Shape& shape : kShapes) names.push_back(shape.name);
    return names;
}

Result<ModelFile> open_shape(const std::string& config) {
    const auto* const found = std::find_if(kShapes.begin(), kShapes.end(),
                                           [&](const Shape& s) { return s.name == config; });
    if (found != kShapes.end()) return random_model(config, found->text);
    if (is_path(config)) return open_random_model(config);
    return unknown(config);
}

}  // namespace paceline
