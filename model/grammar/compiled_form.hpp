// The bytes of a compiled grammar: a line with the control tokens that it names, then the library's
// own form.
//
//     paceline-grammar 2 5 9\n{"grammar": ...
//
// read_form() treats its input as untrusted. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/ids.hpp"
#include "ipc/base/result.hpp"

namespace paceline {

struct CompiledForm {
    std::vector<TokenId> named;  // ascending
    std::string library;
};

[[nodiscard]] std::string write_form(const CompiledForm& form);
/// Errors: BadFile for a line of another form.
[[nodiscard]] Result<CompiledForm> read_form(std::string_view bytes);

}  // namespace paceline
