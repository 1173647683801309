// Shapes: models without weights, for --random. Those of configs/shapes are embedded in the program
// at build time and are found by name; others are files of the user.
//
// Constant; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"
#include "model/weights/model_file.hpp"

namespace paceline {

/// Sorted.
[[nodiscard]] std::vector<std::string_view> shape_names();

/// The shape of --random CONFIG: a built-in one by its name, else a file (synthetic_model.hpp).
/// Errors: those of open_random_model(); BadArgument for a word that is neither, with the name that
/// was probably meant.
[[nodiscard]] Result<ModelFile> open_shape(const std::string& config);

}  // namespace paceline
