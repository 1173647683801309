// TomlDocument, TomlTable: a TOML file read with messages that name file, table, key and value.
//
// A thin layer over toml++, which stays inside toml_reader.cpp (it is slow to compile). A
// TomlTable points into its document and must not outlive it. Absent keys leave the caller's
// default as it is. No threads of its own; const use from several threads is safe.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/base/result.hpp"

namespace paceline {

struct NumberList {
    std::vector<double> values;
    bool all_whole = true;  // every element was written as an integer: 1, not 1.0
};

class TomlTable {
public:
    struct Node;  // toml++'s table
    TomlTable(const Node* node, std::string file, std::string where);

    [[nodiscard]] bool has(std::string_view key) const;
    [[nodiscard]] bool is_text(std::string_view key) const;

    /// Refuses keys that are not in `known`, naming the first one, the known one that was
    /// probably meant, and all known ones.
    [[nodiscard]] Status allow_only(std::initializer_list<std::string_view> known) const;

    [[nodiscard]] Status read_text(std::string_view key, std::string& out) const;
    [[nodiscard]] Status read_choice(std::string_view key,
                                     std::initializer_list<std::string_view> allowed,
                                     std::string& out) const;
    [[nodiscard]] Status read_int(std::string_view key, int lowest, int highest, int& out) const;
    [[nodiscard]] Status read_bool(std::string_view key, bool& out) const;
    /// Whole or not.
    [[nodiscard]] Status read_number(std::string_view key,
                                     double lowest,
                                     double highest,
                                     double& out) const;
    [[nodiscard]] Result<NumberList> number_list(std::string_view key) const;

    /// The sub-table `key`, nothing if absent; an error if it is something else.
    [[nodiscard]] Result<std::optional<TomlTable>> table(std::string_view key) const;
    /// The array of tables [[key]], empty if absent.
    [[nodiscard]] Result<std::vector<TomlTable>> tables(std::string_view key) const;

    /// "file:line: [table] key = value what" as a BadArgument.
    [[nodiscard]] Error error(std::string_view key, const std::string& what) const;

private:
    const Node* node_;
    std::string file_;
    std::string where_;  // "[draft]", "[[stage]] \"first\"", "" at the top
};

class TomlDocument {
public:
    static Result<TomlDocument> read(const std::string& path);
    static Result<TomlDocument> parse(std::string_view text, const std::string& file);

    TomlDocument(TomlDocument&&) noexcept;
    TomlDocument& operator=(TomlDocument&&) noexcept;
    TomlDocument(const TomlDocument&) = delete;
    TomlDocument& operator=(const TomlDocument&) = delete;
    ~TomlDocument();

    [[nodiscard]] TomlTable root() const;

private:
    struct Impl;
    explicit TomlDocument(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace paceline
