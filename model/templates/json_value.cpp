#include "model/templates/json_value.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ipc/base/json_fault.hpp"

namespace paceline::jinja {
namespace {

constexpr std::size_t kLevelsMax = 100;
constexpr std::string_view kRoles[] = {"system",    "user",     "assistant", "tool",
                                       "developer", "function", "ipython"};

using Json = nlohmann::json;

/// Called by nlohmann's reader, event by event.
class Builder : public nlohmann::json_sax<Json> {
public:
    Builder(Heap& heap, std::string_view source) : heap_{heap}, source_{source} {}

    bool null() override { return put(Value::none()); }
    bool boolean(bool value) override { return put(Value::boolean(value)); }
    bool number_integer(number_integer_t value) override { return put(Value::integer(value)); }
    bool number_unsigned(number_unsigned_t value) override {
        if (value > static_cast<number_unsigned_t>(INT64_MAX))
            return fail("a number beyond 64 bits");
        return put(Value::integer(static_cast<std::int64_t>(value)));
    }
    bool number_float(number_float_t value, const string_t& words) override {
        if (words.find_first_of(".eE") == std::string::npos) return fail("a number beyond 64 bits");
        return put(Value::number(value));
    }
    bool string(string_t& value) override { return put(text(value)); }
    bool binary(binary_t& /*value*/) override { return fail("binary data"); }
    bool start_object(std::size_t /*count*/) override { return open(true); }
    bool start_array(std::size_t /*count*/) override { return open(false); }
    bool key(string_t& value) override {
        open_.back().key = text(value);
        return true;
    }
    bool end_object() override {
        Dict dict = std::move(open_.back().dict);
        open_.pop_back();
        return put(heap_.add(std::move(dict)));
    }
    bool end_array() override {
        List list = std::move(open_.back().list);
        open_.pop_back();
        return put(heap_.add(std::move(list)));
    }
    bool parse_error(std::size_t position,
                     const std::string& /*token*/,
                     const nlohmann::detail::exception& error) override {
        return fail("no JSON: " + json_fault(source_, position, error.what()));
    }

    Value result = {};
    std::string problem;

private:
    struct Open {
        bool is_object;
        Value key = {};
        Dict dict = {};
        List list = {};
    };

    Value text(const std::string& words) { return heap_.add(Text{words, Origin::User}); }
    bool fail(const std::string& what) {
        if (problem.empty()) problem = what;
        return false;
    }
    bool open(bool is_object) {
        if (open_.size() == kLevelsMax) return fail("more than 100 levels");
        open_.push_back({.is_object = is_object});
        return true;
    }
    bool put(const Value& value) {
        if (open_.empty()) {
            result = value;
        } else if (!open_.back().is_object) {
            open_.back().list.items.push_back(value);
        } else {
            put_in_object(open_.back(), value);
        }
        return true;
    }
    static void put_in_object(Open& open, const Value& value) {
        for (auto& [key, old] : open.dict.items) {
            if (key.text().bytes() != open.key.text().bytes()) continue;
            old = value;
            return;
        }
        open.dict.items.emplace_back(open.key, value);
    }

    Heap& heap_;
    std::string_view source_;
    std::vector<Open> open_;
};

}  // namespace

Result<Value> json_value(Heap& heap, std::string_view json) {
    Builder builder{heap, json};
    if (!Json::sax_parse(json, &builder)) return Error{Errc::BadArgument, builder.problem};
    return builder.result;
}

Value with_known_role(Heap& heap, const Value& message) {
    if (!message.is(Kind::Dict)) return message;
    Dict dict = message.dict();
    for (auto& [key, value] : dict.items) {
        if (!value.is(Kind::Text) || key.text().bytes() != "role") continue;
        const std::string& role = value.text().bytes();
        if (std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles))
            value = heap.add(Text{role, Origin::Template});
    }
    return heap.add(std::move(dict));
}

}  // namespace paceline::jinja
