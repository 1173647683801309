// TomlTable: a TOML file read with messages that name file, table, key and value.
//
// A thin layer over toml++, which stays inside toml_reader.cpp (it is slow to compile). A TomlTable
// keeps the file that it is part of. Which values a key may have says its Field (field.hpp). No threads
// of its own; const use from several threads is safe.
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
/// monostate: absent, or of another type (a date, a table, a list of something else).
using TomlValue = std::variant<std::monostate, bool, TomlNumber, std::string, TomlNumbers>;

class TomlTable {
public:
    struct Node;  // toml++'s table
    TomlTable(std::shared_ptr<const Node> node, std::string file, std::string where);

    [[nodiscard]] bool has(std::string_view key) const;
    [[nodiscard]] TomlValue value(std::string_view key) const;

    /// Refuses keys that are not in `known`, naming the first one, the known one that was
    /// probably meant, and all known ones.
    [[nodiscard]] Status allow_only(std::span<const std::string_view> known) const;

    /// The sub-table `key`, which the table has; an error if it is something else.
    [[nodiscard]] Result<TomlTable> table(std::string_view key) const;
    /// The array of tables [[key]], empty if absent.
    [[nodiscard]] Result<std::vector<TomlTable>> tables(std::string_view key) const;

    /// "file:line: [table] key = value what" as a BadArgument.
    [[nodiscard]] Error error(std::string_view key, const std::string& what) const;

private:
    std::shared_ptr<const Node> node_;
    std::string file_;
    std::string where_;  // "[draft]", "[[stage]] \"first\"", "" at the top
};

/// Bounds what a file can cost; a table inside a table, destroyed recursively, takes two bytes.
inline constexpr std::size_t kTomlBytesMax = 64U << 10U;

/// Any bytes; `file` is the name used in messages. Errors: BadArgument, as for a value that is
/// not allowed, with the line; too long.
[[nodiscard]] Result<TomlTable> parse_toml(std::string_view text, const std::string& file);

}  // namespace paceline
