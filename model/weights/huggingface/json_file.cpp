#include "model/weights/huggingface/json_file.hpp"

#include <fmt/core.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "ipc/base/json_fault.hpp"
#include "model/weights/mapped_file.hpp"
#include "model/weights/message_text.hpp"

namespace paceline::huggingface {
namespace {

using nlohmann::json;

/// Builds the document from the parser's events, and stops it at the first thing that is refused.
class Builder : public nlohmann::json_sax<json> {
public:
    explicit Builder(std::string_view source) : source_{source} {}

    json root;
    std::string complaint;

    bool null() override { return place(nullptr) != nullptr; }
    bool boolean(bool value) override { return place(value) != nullptr; }
    bool number_integer(number_integer_t value) override { return place(value) != nullptr; }
    bool number_unsigned(number_unsigned_t value) override { return place(value) != nullptr; }
    bool number_float(number_float_t value, const string_t& /*text*/) override {
        return place(value) != nullptr;
    }
    bool string(string_t& value) override { return place(std::move(value)) != nullptr; }
    bool binary(binary_t& /*value*/) override { return refuse("holds binary data"); }
    bool start_object(std::size_t /*elements*/) override { return open(json::object()); }
    bool start_array(std::size_t /*elements*/) override { return open(json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t& name) override {
        const auto [member, is_new] =
            open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
        if (!is_new) return refuse("has the key " + paceline::quoted_text(name) + " twice");
        member_ = &member->second;
        return true;
    }
    bool parse_error(std::size_t position,
                     const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        return refuse("is not JSON: " + json_fault(source_, position, error.what()));
    }

private:
    bool refuse(std::string what) {
        if (complaint.empty()) complaint = std::move(what);
        return false;
    }
    /// Puts the value where the events have come to.
    json* place(json value) {
        if (open_.empty()) {
            root = std::move(value);
            return &root;
        }
        if (json* member = std::exchange(member_, nullptr)) {
            *member = std::move(value);
            return member;
        }
        auto& elements = open_.back()->get_ref<json::array_t&>();
        elements.push_back(std::move(value));
        return &elements.back();
    }
    bool open(json empty) {
        if (open_.size() == kJsonDepthMax)
            return refuse(fmt::format("is nested more than {} deep", kJsonDepthMax));
        open_.push_back(place(std::move(empty)));
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    std::string_view source_;
    std::vector<json*> open_;  // the objects and arrays that have begun; nothing moves an open one
    json* member_ = nullptr;   // where the value of the last key goes
};

}  // namespace

Result<std::optional<std::string>> read_text_file(const std::string& path, std::size_t bytes_max) {
    if (!MappedFile::exists(path)) return std::optional<std::string>{};
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) return file.error();
    const std::span<const std::byte> bytes = file.value().bytes();
    if (bytes.size() > bytes_max) {
        return Error{Errc::BadFile, fmt::format("{} has {} bytes; at most {} are read", path,
                                                bytes.size(), bytes_max)};
    }
    return std::optional{std::string{reinterpret_cast<const char*>(bytes.data()), bytes.size()}};
}

Result<json> parse_json_object(std::string_view text, const std::string& file) {
    Builder builder{text};
    const bool whole = json::sax_parse(text.begin(), text.end(), &builder);
    if (!whole) return Error{Errc::BadFile, file + " " + builder.complaint};
    if (!builder.root.is_object()) {
        return Error{Errc::BadFile, file + " holds no JSON object, but something else"};
    }
    return std::move(builder.root);
}

}  // namespace paceline::huggingface
