// Methods: the pipelines of configs/ that are embedded in the program at build time, by name:
// `paceline run --method NAME`. Constant; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace paceline {

struct Method {
    std::string_view name;     // of its file without ".toml"
    std::string_view family;   // of the file's line "# Family: ..."
    std::string_view summary;  // the comment before that line: what it is, when it pays
    std::string_view text;     // the file
};

/// Sorted by name; `autoregressive` is among them.
[[nodiscard]] std::span<const Method> methods();

/// Decoding without stages; as a pipeline, `autoregressive`.
inline constexpr const char* kPlainMethod = "plain";
/// The same by one stage.
inline constexpr const char* kPlainPipeline = "autoregressive";

/// nullptr: there is none. Also kPlainMethod.
[[nodiscard]] const Method* find_method(std::string_view name);

/// Why a method of a paper is not offered; empty: the name is not one of these.
[[nodiscard]] std::string_view why_not_offered(std::string_view name);

/// ", did you mean 'pearl'? (known: plain, adadecode, ...)": the end of a message about a name that
/// is not a method's.
[[nodiscard]] std::string known_methods_text(std::string_view name);

/// For --list-methods: the families, each with one sentence and the names of its methods.
[[nodiscard]] std::string families_table();

/// For --list-methods all: "name  summary" for each, and for plain decoding; what does not fit the
/// line goes on indented.
[[nodiscard]] std::string methods_table();

}  // namespace paceline
