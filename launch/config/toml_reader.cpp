#include "launch/config/toml_reader.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

/// toml++ asserts that no key begins with '[', which a file can do ("[[["): no reason to abort.
constexpr void toml_assert(bool holds, const char* what) {
    if (!holds) throw std::logic_error{what};
}
#define TOML_ASSERT(expr) toml_assert(static_cast<bool>(expr), #expr)
#include <fmt/core.h>

#include <toml++/toml.h>

#include "launch/base/nearest_word.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

// TomlTable::Node is never defined: it is toml::table under a name that headers can say.
namespace {

using NodePointer = std::shared_ptr<const TomlTable::Node>;

const toml::table& as_table(const NodePointer& node) {
    return *reinterpret_cast<const toml::table*>(node.get());
}

/// `table` of the file that `owner` keeps.
template <class Owner>
NodePointer as_node(const std::shared_ptr<Owner>& owner, const toml::table& table) {
    return {owner, reinterpret_cast<const TomlTable::Node*>(&table)};
}

std::string value_text(const toml::node& node) {
    std::ostringstream text;
    if (const toml::value<std::string>* word = node.as_string()) {
        text << quoted(word->get());
    } else if (const toml::array* array = node.as_array()) {
        for (const toml::node& element : *array)
            text << (&element == array->get(0) ? "[ " : ", ") << value_text(element);
        text << (array->empty() ? "[]" : " ]");
    } else if (node.is_table()) {
        text << "a table";
    } else {
        node.visit([&](const auto& n) {
            if constexpr (toml::is_value<decltype(n)>) text << n;
        });
    }
    return text.str();
}

TomlNumber number_of(const toml::node& node) {
    return {node.value<double>().value_or(0.0), node.is_integer()};
}

}  // namespace

TomlTable::TomlTable(NodePointer node, std::string file, std::string where)
    : node_{std::move(node)}, file_{std::move(file)}, where_{std::move(where)} {}

bool TomlTable::has(std::string_view key) const {
    return as_table(node_).contains(key);
}

TomlValue TomlTable::value(std::string_view key) const {
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return {};
    if (const toml::value<bool>* flag = node->as_boolean()) return flag->get();
    if (const toml::value<std::string>* text = node->as_string()) return text->get();
    if (node->is_number()) return number_of(*node);
    const toml::array* array = node->as_array();
    if (array == nullptr) return {};
    TomlNumbers list;
    for (const toml::node& element : *array) {
        if (!element.is_number()) return {};
        list.push_back(number_of(element));
    }
    return list;
}

Error TomlTable::error(std::string_view key, const std::string& what) const {
    const toml::node* node = as_table(node_).get(key);
    const toml::source_region& place = node != nullptr ? node->source() : as_table(node_).source();
    std::string text = file_;
    if (place.begin.line > 0) text += fmt::format(":{}", place.begin.line);
    text += ": ";
    if (!where_.empty()) text += where_ + " ";
    const std::string shown = quoted(key);  // escaped
    text += shown.substr(1, shown.size() - 2);
    if (node != nullptr) text += " = " + value_text(*node);
    return Error{Errc::BadArgument, text + " " + what};
}

Status TomlTable::allow_only(std::span<const std::string_view> known) const {
    for (const auto& [key, node] : as_table(node_)) {
        const std::string_view name = key.str();
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        return error(name, "is not a known key" + known_text(name, known));
    }
    return {};
}

Result<TomlTable> TomlTable::table(std::string_view key) const {
    const toml::table* table = as_table(node_).get_as<toml::table>(key);
    const std::string title = "[" + std::string{key} + "]";
    if (table == nullptr) return error(key, "must be a table: " + title);
    return TomlTable{as_node(node_, *table), file_, title};
}

Result<std::vector<TomlTable>> TomlTable::tables(std::string_view key) const {
    std::vector<TomlTable> found;
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return found;
    const toml::array* array = node->as_array();
    const std::string title = "[[" + std::string{key} + "]]";
    if (array == nullptr) return error(key, "must be a list of tables: " + title);
    for (const toml::node& element : *array) {
        const toml::table* table = element.as_table();
        if (table == nullptr) return error(key, "must be a list of tables: " + title);
        const std::string name = (*table)["name"].value_or(std::string{});
        found.emplace_back(as_node(node_, *table), file_,
                           name.empty() ? title : title + " " + quoted(name) + ":");
    }
    return found;
}

Result<TomlTable> parse_toml(std::string_view text, const std::string& file) {
    try {
        const auto root = std::make_shared<const toml::table>(toml::parse(text, file));
        return TomlTable{as_node(root, *root), file, ""};
    } catch (const toml::parse_error& wrong) {
        return Error{Errc::BadArgument, fmt::format("{}:{}: {}", file, wrong.source().begin.line,
                                                    wrong.description())};
    } catch (const std::logic_error& /*wrong*/) {
        return Error{Errc::BadArgument,
                     file + ": is not TOML: a key begins with a character such as ["};
    }
}

}  // namespace paceline
