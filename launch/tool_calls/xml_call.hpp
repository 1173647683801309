// XmlCall: one call in the form of tags, byte by byte, as a call with a JSON object.
//
//     <function=rain>
//     <parameter=city>
//     Köln
//     </parameter>                 ->    rain {"city": "Köln", "days": [1, 2]}
//     <parameter=days>
//     [1, 2]
//     </parameter>
//     </function>
//
// The call begins once its name is known. Of a value one line break at each end is the format's.
// A value whose parameter is a text by the tool's schema (ParameterTexts) leaves as it comes, as a
// JSON string; one that may be null too waits for its end, and is null or a string. Another one
// waits as well, and is the JSON value that it spells (True, False and None too), or else a string.
// </tool_call> instead of </function> ends a call too. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "launch/tool_calls/reply_event.hpp"
#include "launch/tool_calls/tool_format.hpp"

namespace paceline::serve {

inline constexpr std::size_t kWaitingValueBytesMax = std::size_t{256} << 10U;

class XmlCall {
public:
    enum class Step : std::uint8_t { Inside, Ended, Bad };

    XmlCall() = default;
    /// The next byte is the first one of <function=. `format` outlives this object.
    explicit XmlCall(const ReplyFormat& format) : format_{&format} {}
    /// <function= was read, with nothing around it: only the name of a tool makes it a call.
    [[nodiscard]] static XmlCall behind_tag(const ReplyFormat& format);

    /// Not after anything but Inside. After Bad: finish() if it has begun.
    [[nodiscard]] Step push(char c, ReplyEvents& events);
    /// Ends a call that has begun and not ended.
    void finish(ReplyEvents& events);
    [[nodiscard]] bool begun() const { return begun_; }
    /// After Bad: the last bytes, which belong to nothing that was read before.
    [[nodiscard]] const std::string& unread() const { return tag_; }

private:
    enum class State : std::uint8_t { Tag, Name, Body, Key, Value };
    enum class Kind : std::uint8_t { Text, Word, Json };

    [[nodiscard]] Step name(char c, ReplyEvents& events);
    [[nodiscard]] Step body(char c, ReplyEvents& events);
    [[nodiscard]] Step key(char c, ReplyEvents& events);
    void value(char c, ReplyEvents& events);
    void take(char c, ReplyEvents& events);
    void value_ended(ReplyEvents& events);
    void find_kind(const std::string& parameter);
    /// The value leaves as it comes.
    [[nodiscard]] bool at_once() const { return kind_ == Kind::Text && !may_be_null_; }

    const ReplyFormat* format_ = nullptr;
    bool known_alone_ = false;  // only names of tools
    State state_ = State::Tag;
    std::string tag_ = {};    // part of a tag
    std::string name_ = {};   // of the call
    std::string key_ = {};    // of the parameter
    std::string value_ = {};  // that waits for its end
    Kind kind_ = Kind::Json;
    bool may_be_null_ = false;    // a Text or Word
    bool at_line_break_ = false;  // the value's first byte comes
    bool has_parameter_ = false;
    bool begun_ = false;
    bool ended_ = false;
};

}  // namespace paceline::serve
