// JsonBuilder: a document built from the events of nlohmann's SAX parser, within limits.
//
//     parser -- events --> JsonBuilder -- root(), or the first refusal
//
// Refused are a key that an object has twice (a parser would silently keep one of the two), more
// levels, values or keys of an object than the limits allow, and what is not JSON. A refusal stops
// the parser; its words are the caller's. Nothing recurses; memory is bounded by the length of the
// text. Members of an ordered_json keep their order.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace paceline {

struct JsonLimits {
    std::size_t depth;  // of objects and arrays inside each other
    std::size_t values = std::numeric_limits<std::size_t>::max();
    std::size_t keys = std::numeric_limits<std::size_t>::max();  // of one object
};

enum class JsonFault : std::uint8_t { None, Syntax, Binary, Depth, Values, Keys, DoubleKey };

struct JsonRefusal {
    JsonFault fault = JsonFault::None;
    std::string text;          // DoubleKey: the key; Syntax: what the parser says
    std::size_t position = 0;  // Syntax: the byte, counted from 1
};

/// `Json` is nlohmann::json or nlohmann::ordered_json. The names of the events are those of
/// nlohmann's interface.
template <class Json>
class JsonBuilder {
public:
    explicit JsonBuilder(const JsonLimits& limits) : limits_{limits} {}

    /// The document, if nothing was refused.
    [[nodiscard]] Json& root() { return root_; }
    [[nodiscard]] const JsonRefusal& refusal() const { return refusal_; }

    bool null() { return add(nullptr); }
    bool boolean(bool value) { return add(value); }
    bool number_integer(typename Json::number_integer_t value) { return add(value); }
    bool number_unsigned(typename Json::number_unsigned_t value) { return add(value); }
    bool number_float(typename Json::number_float_t value, const std::string& /*text*/) {
        return add(value);
    }
    bool string(std::string& value) { return add(std::move(value)); }
    bool binary(typename Json::binary_t& /*value*/) { return refuse(JsonFault::Binary); }
    bool start_object(std::size_t /*elements*/) { return open(Json::object()); }
    bool start_array(std::size_t /*elements*/) { return open(Json::array()); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(std::string& name) {
        auto& members = open_.back()->template get_ref<typename Json::object_t&>();
        if (members.size() == limits_.keys) return refuse(JsonFault::Keys);
        if constexpr (kOrdered) {
            // Its own emplace() would look at all keys.
            if (!names_.back().insert(name).second) return refuse(JsonFault::DoubleKey, name);
            members.push_back({std::move(name), nullptr});
            member_ = &members.back().second;
        } else {
            const auto [member, is_new] = members.emplace(name, nullptr);
            if (!is_new) return refuse(JsonFault::DoubleKey, name);
            member_ = &member->second;
        }
        return true;
    }
    bool parse_error(std::size_t position,
                     const std::string& /*last_token*/,
                     const nlohmann::detail::exception& error) {
        return refuse(JsonFault::Syntax, error.what(), position);
    }

private:
    static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

    bool refuse(JsonFault fault, std::string text = {}, std::size_t position = 0) {
        if (refusal_.fault == JsonFault::None) refusal_ = {fault, std::move(text), position};
        return false;
    }
    /// Puts the value where the events have come to.
    Json* place(Json value) {
        if (open_.empty()) return &(root_ = std::move(value));
        if (Json* member = std::exchange(member_, nullptr)) {
            *member = std::move(value);
            return member;
        }
        auto& elements = open_.back()->template get_ref<typename Json::array_t&>();
        elements.push_back(std::move(value));
        return &elements.back();
    }
    bool add(Json value) {
        if (++values_ > limits_.values) return refuse(JsonFault::Values);
        place(std::move(value));
        return true;
    }
    /// A parent is not changed while one of its children is open, so the pointers stay valid.
    bool open(Json empty) {
        if (open_.size() == limits_.depth) return refuse(JsonFault::Depth);
        if (++values_ > limits_.values) return refuse(JsonFault::Values);
        open_.push_back(place(std::move(empty)));
        if constexpr (kOrdered) names_.emplace_back();
        return true;
    }
    bool close() {
        open_.pop_back();
        if constexpr (kOrdered) names_.pop_back();
        return true;
    }

    JsonLimits limits_;
    Json root_;
    std::vector<Json*> open_;                             // the objects and arrays that have begun
    std::vector<std::unordered_set<std::string>> names_;  // ordered: of the keys of each of them
    Json* member_ = nullptr;                              // where the value of the last key goes
    std::size_t values_ = 0;
    JsonRefusal refusal_;
};

}  // namespace paceline
