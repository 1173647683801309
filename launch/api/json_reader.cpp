#include "launch/api/json_reader.hpp"

#include <fmt/core.h>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/weights/message_text.hpp"

namespace paceline::serve {
namespace {

using json = nlohmann::ordered_json;

ApiError bad_json(const std::string& what) {
    return {.status = 400, .message = "the body " + what, .code = "invalid_json"};
}

/// Builds the value; stops at the first thing that is refused. The names are those of nlohmann's
/// interface.
class LimitedReader {
public:
    using Value = json;

    bool null() { return add({}); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(json::number_integer_t value) { return add(value); }
    bool number_unsigned(json::number_unsigned_t value) { return add(value); }
    bool number_float(json::number_float_t value, const std::string& /*text*/) {
        return add(value);
    }
    bool string(std::string& value) { return add(std::move(value)); }
    bool binary(json::binary_t& /*value*/) { return refuse(bad_json("is not JSON")); }
    bool start_object(std::size_t /*elements*/) { return open(json::object()); }
    bool start_array(std::size_t /*elements*/) { return open(json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& name) {
        if (names_.back().size() == kJsonKeysMax)
            return refuse(
                bad_json(fmt::format("has an object with more than {} keys", kJsonKeysMax)));
        if (!names_.back().insert(name).second)
            return refuse(bad_json("has the key '" + visible(name) + "' twice in one object"));
        key_ = std::move(name);
        return true;
    }
    bool parse_error(std::size_t position,
                     const std::string& /*last_token*/,
                     const json::exception& /*error*/) {
        return refuse(bad_json(fmt::format("is not valid JSON, at byte {}", position)));
    }

    [[nodiscard]] bool refused() const { return refused_; }
    [[nodiscard]] const ApiError& error() const { return error_; }
    [[nodiscard]] json& root() { return root_; }

private:
    bool refuse(ApiError error) {
        refused_ = true;
        error_ = std::move(error);
        return false;
    }
    json* place(json value) {
        if (open_.empty()) return &(root_ = std::move(value));
        json& parent = *open_.back();
        if (parent.is_object()) {
            // Not parent[key_]: it would look at all keys again.
            auto& members = parent.get_ref<json::object_t&>();
            members.push_back({std::move(key_), std::move(value)});
            return &members.back().second;
        }
        parent.push_back(std::move(value));
        return &parent.back();
    }
    bool add(json value) {
        if (++values_ > kJsonValuesMax)
            return refuse(bad_json(fmt::format("has more than {} values", kJsonValuesMax)));
        place(std::move(value));
        return true;
    }
    /// A parent is not changed while one of its children is open, so the pointers stay valid.
    bool open(json value) {
        if (open_.size() == kJsonDepthMax)
            return refuse(bad_json(fmt::format("is nested deeper than {} levels", kJsonDepthMax)));
        if (++values_ > kJsonValuesMax)
            return refuse(bad_json(fmt::format("has more than {} values", kJsonValuesMax)));
        open_.push_back(place(std::move(value)));
        names_.emplace_back();
        return true;
    }
    bool close() {
        open_.pop_back();
        names_.pop_back();
        return true;
    }

    json root_;
    std::vector<json*> open_;
    std::vector<std::unordered_set<std::string>> names_;  // of the keys of each open object
    std::string key_;
    std::size_t values_ = 0;
    bool refused_ = false;
    ApiError error_;
};

}  // namespace

ApiResult<json> read_json(std::string_view text) {
    LimitedReader reader;
    const bool whole = json::sax_parse(text.begin(), text.end(), &reader);
    if (reader.refused()) return reader.error();
    if (!whole) return bad_json("is not valid JSON");
    return std::move(reader.root());
}

ApiResult<json> read_json_object(std::string_view text) {
    ApiResult<json> read = read_json(text);
    if (read && !read.value().is_object()) return bad_json("is not a JSON object");
    return read;
}

}  // namespace paceline::serve
