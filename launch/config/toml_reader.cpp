#include "launch/config/toml_reader.hpp"

#include <algorithm>
#include <sstream>

#include <toml++/toml.h>

#include "launch/base/nearest_word.hpp"
#include "launch/base/text_input.hpp"

namespace paceline {

// TomlTable::Node is never defined: it is toml::table under a name that headers can say.
namespace {

const toml::table& as_table(const TomlTable::Node* node) {
    return *reinterpret_cast<const toml::table*>(node);
}

const TomlTable::Node* as_node(const toml::table& table) {
    return reinterpret_cast<const TomlTable::Node*>(&table);
}

std::string value_text(const toml::node& node) {
    std::ostringstream text;
    if (const toml::value<std::string>* word = node.as_string()) {
        text << '"' << word->get() << '"';
    } else if (const toml::array* array = node.as_array()) {
        text << *array;
    } else if (node.is_table()) {
        text << "a table";
    } else {
        node.visit([&](const auto& n) {
            if constexpr (toml::is_value<decltype(n)>) text << n;
        });
    }
    return text.str();
}

std::string joined(std::initializer_list<std::string_view> words, const char* quote) {
    std::string text;
    for (const std::string_view word : words) {
        if (!text.empty()) text += ", ";
        text.append(quote).append(word).append(quote);
    }
    return text;
}

}  // namespace

struct TomlDocument::Impl {
    toml::table table;
    std::string file;
};

TomlTable::TomlTable(const Node* node, std::string file, std::string where)
    : node_{node}, file_{std::move(file)}, where_{std::move(where)} {}

bool TomlTable::has(std::string_view key) const {
    return as_table(node_).contains(key);
}

bool TomlTable::is_text(std::string_view key) const {
    const toml::node* node = as_table(node_).get(key);
    return node != nullptr && node->is_string();
}

Error TomlTable::error(std::string_view key, const std::string& what) const {
    const toml::node* node = as_table(node_).get(key);
    const toml::source_region& place = node != nullptr ? node->source() : as_table(node_).source();
    std::string text = file_;
    if (place.begin.line > 0) text += ":" + std::to_string(place.begin.line);
    text += ": ";
    if (!where_.empty()) text += where_ + " ";
    text += key;
    if (node != nullptr) text += " = " + value_text(*node);
    return Error{Errc::BadArgument, text + " " + what};
}

Status TomlTable::allow_only(std::initializer_list<std::string_view> known) const {
    for (const auto& [key, node] : as_table(node_)) {
        const std::string_view name = key.str();
        if (std::find(known.begin(), known.end(), name) == known.end()) {
            const std::string_view nearest = nearest_word(name, {known.begin(), known.size()});
            std::string what = "is not a known key";
            if (!nearest.empty()) what.append(", did you mean ").append(nearest).append("?");
            return error(name, what + " (known: " + joined(known, "") + ")");
        }
    }
    return {};
}

Status TomlTable::read_text(std::string_view key, std::string& out) const {
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return {};
    const toml::value<std::string>* text = node->as_string();
    if (text == nullptr) return error(key, "must be a text in quotes");
    out = text->get();
    return {};
}

Status TomlTable::read_choice(std::string_view key,
                              std::initializer_list<std::string_view> allowed,
                              std::string& out) const {
    std::string word = out;
    if (Status s = read_text(key, word); !s.ok()) return s;
    if (has(key) && std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
        return error(key, "is not allowed (allowed: " + joined(allowed, "\"") + ")");
    }
    out = word;
    return {};
}

Status TomlTable::read_int(std::string_view key, int lowest, int highest, int& out) const {
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return {};
    const toml::value<std::int64_t>* number = node->as_integer();
    if (number == nullptr || number->get() < lowest || number->get() > highest) {
        return error(key, "must be a whole number from " + std::to_string(lowest) + " to " +
                              std::to_string(highest));
    }
    out = static_cast<int>(number->get());
    return {};
}

Status TomlTable::read_bool(std::string_view key, bool& out) const {
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return {};
    const toml::value<bool>* value = node->as_boolean();
    if (value == nullptr) return error(key, "must be true or false");
    out = value->get();
    return {};
}

Status TomlTable::read_number(std::string_view key,
                              double lowest,
                              double highest,
                              double& out) const {
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return {};
    const double number = node->value<double>().value_or(lowest - 1);
    // Also refuses what is no number, and NaN, which is in no range.
    if (!node->is_number() || !(number >= lowest && number <= highest)) {
        std::ostringstream range;
        range << "must be a number from " << lowest << " to " << highest;
        return error(key, range.str());
    }
    out = number;
    return {};
}

Result<NumberList> TomlTable::number_list(std::string_view key) const {
    const toml::node* node = as_table(node_).get(key);
    const toml::array* array = node == nullptr ? nullptr : node->as_array();
    if (array == nullptr) return error(key, "must be a list of numbers");
    NumberList list;
    for (const toml::node& element : *array) {
        if (!element.is_number()) return error(key, "must be a list of numbers");
        list.all_whole = list.all_whole && element.is_integer();
        list.values.push_back(element.value<double>().value_or(0.0));
    }
    return list;
}

Result<std::optional<TomlTable>> TomlTable::table(std::string_view key) const {
    const toml::node* node = as_table(node_).get(key);
    if (node == nullptr) return std::optional<TomlTable>{};
    const toml::table* table = node->as_table();
    if (table == nullptr) return error(key, "must be a table: [" + std::string{key} + "]");
    return std::optional<TomlTable>{
        TomlTable{as_node(*table), file_, "[" + std::string{key} + "]"}};
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
        found.emplace_back(as_node(*table), file_,
                           name.empty() ? title : title + " \"" + name + "\":");
    }
    return found;
}

TomlDocument::TomlDocument(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
TomlDocument::TomlDocument(TomlDocument&&) noexcept = default;
TomlDocument& TomlDocument::operator=(TomlDocument&&) noexcept = default;
TomlDocument::~TomlDocument() = default;

Result<TomlDocument> TomlDocument::read(const std::string& path) {
    Result<std::string> text = read_file(path);
    if (!text) return text.error();
    return parse(text.value(), path);
}

Result<TomlDocument> TomlDocument::parse(std::string_view text, const std::string& file) {
    try {
        return TomlDocument{std::make_unique<Impl>(Impl{toml::parse(text, file), file})};
    } catch (const toml::parse_error& wrong) {
        return Error{Errc::BadFile, file + ":" + std::to_string(wrong.source().begin.line) + ": " +
                                        std::string{wrong.description()}};
    }
}

TomlTable TomlDocument::root() const {
    return TomlTable{as_node(impl_->table), impl_->file, ""};
}

}  // namespace paceline
