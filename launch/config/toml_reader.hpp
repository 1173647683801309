// TomlTable: TOML files read with messages that name file, table, key and value.
//
// A thin layer over toml++, which stays inside toml_reader.cpp (it is slow to compile). A TomlTable
// keeps the files that it is part of. A table of several files (over()) has the keys of all of
// them; a key that stands in several has the value of the first. Which values a key may have says
// its Field (field.hpp). No threads of its own; const use from several threads is safe.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

struct TomlNumber {
    double value = 0;
    bool whole = true;  // written as an integer: 1, not 1.0
};
using TomlNumbers = std::vector<TomlNumber>;
using TomlTexts = std::vector<std::string>;
/// monostate: absent, or of another type (a date, a table, a list of something else).
using TomlValue =
    std::variant<std::monostate, bool, TomlNumber, std::string, TomlNumbers, TomlTexts>;

class TomlTable {
public:
    struct Node;  // toml++'s table
    /// A table of one file.
    struct Layer {
        std::shared_ptr<const Node> node;
        std::string file;
    };
    TomlTable(std::vector<Layer> layers, std::string where);

    /// This table with the keys of `base` that it does not have. Tables are merged in the same way,
    /// to any depth; every other value, arrays of tables among them, is that of one file.
    [[nodiscard]] TomlTable over(const TomlTable& base) const;

    [[nodiscard]] bool has(std::string_view key) const;
    [[nodiscard]] TomlValue value(std::string_view key) const;
    /// The value as TOML; empty if absent.
    [[nodiscard]] std::string text(std::string_view key) const;

    /// Refuses keys that are not in `known`, naming the first one, the known one that was
    /// probably meant, and all known ones.
    [[nodiscard]] Status allow_only(std::span<const std::string_view> known) const;

    /// The sub-table `key`, which the table has; an error if it is something else.
    [[nodiscard]] Result<TomlTable> table(std::string_view key) const;
    /// The array of tables [[key]], empty if absent.
    [[nodiscard]] Result<std::vector<TomlTable>> tables(std::string_view key) const;

    /// "file:line: [table] key = value what" as a BadArgument; the file is that of the key.
    [[nodiscard]] Error error(std::string_view key, const std::string& what) const;

private:
    /// The first layer that has `key`; the first of all if none has it.
    [[nodiscard]] const Layer& layer_of(std::string_view key) const;
    [[nodiscard]] Error error(const Layer& layer,
                              std::string_view key,
                              const std::string& what) const;

    std::vector<Layer> layers_;  // at least one
    std::string where_;          // "[draft]", "[[stage]] \"first\"", "" at the top
};

/// Bounds what a file can cost; a table inside a table, destroyed recursively, takes two bytes.
inline constexpr std::size_t kTomlBytesMax = 64U << 10U;

/// Any bytes; `file` is the name used in messages. Errors: BadArgument, as for a value that is
/// not allowed, with the line; too long.
[[nodiscard]] Result<TomlTable> parse_toml(std::string_view text, const std::string& file);

}  // namespace paceline
