// CallObject: one call in the form of a JSON object, byte by byte.
//
//     {"name": "f", "arguments": {...}}      "parameters" is another word for "arguments"
//
// The call begins once its name is known and its arguments begin: its events leave from then on as
// the bytes come. Arguments that stand before the name wait for it; arguments that are a text hold
// the object in it. Other members are skipped. Control characters inside strings leave escaped.
// One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "launch/tool_calls/json_scanner.hpp"
#include "launch/tool_calls/reply_event.hpp"

namespace paceline::serve {

class CallObject {
public:
    enum class Step : std::uint8_t { Inside, Ended, Bad };

    CallObject() = default;
    /// `names`: the only ones that a call may have, and it needs arguments. Outlives this object.
    explicit CallObject(std::span<const std::string> names) : names_{names}, strict_{true} {}
    /// Only the arguments follow.
    [[nodiscard]] static CallObject with_name(std::string name);

    /// Not after anything but Inside. After Bad: finish() if it has begun.
    [[nodiscard]] Step push(char c, ReplyEvents& events);
    /// Ends a call that has begun and not ended.
    void finish(ReplyEvents& events);
    [[nodiscard]] bool begun() const { return begun_; }

private:
    enum class State : std::uint8_t { Open, FirstKey, Key, InKey, Colon, Value, AfterValue };
    enum class Member : std::uint8_t { Name, Arguments, Other };

    [[nodiscard]] Step value(char c, ReplyEvents& events);
    [[nodiscard]] Step value_ended(ReplyEvents& events);
    [[nodiscard]] Step object_ended(ReplyEvents& events);
    [[nodiscard]] bool known(const std::string& name) const;
    [[nodiscard]] bool in_key(char c);
    void begin_value();
    void begin_call(ReplyEvents& events);
    void take(char c, ReplyEvents& events);

    std::span<const std::string> names_ = {};
    bool strict_ = false;
    bool arguments_alone_ = false;
    State state_ = State::Open;
    Member member_ = Member::Other;
    JsonScanner scanner_ = {};
    std::string kept_ = {};       // of a key, or of the value that is read
    std::string arguments_ = {};  // that came before the name
    std::string name_ = {};
    bool named_ = false;
    bool has_arguments_ = false;
    bool streams_ = false;  // the arguments that are read leave as they come
    bool begun_ = false;
    bool ended_ = false;
};

}  // namespace paceline::serve
