// CallReader: finds the calls of tools in a text, byte by byte.
//
// What is no call comes out as text, also the tags around it. A text that may become a call is held
// back until its name and its arguments begin, at most kHeldBytesMax of it; what was said after n
// bytes depends on these bytes alone, not on how they were divided. Blanks beside a call are
// dropped, but not between two texts.
// A call whose JSON or whose tags are broken ends there; what follows is text.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "launch/tool_calls/call_object.hpp"
#include "launch/tool_calls/tool_format.hpp"
#include "launch/tool_calls/xml_call.hpp"

namespace paceline::serve {

inline constexpr std::size_t kHeldBytesMax = std::size_t{256} << 10U;
inline constexpr std::size_t kToolNameBytesMax = 256;

class CallReader {
public:
    /// `format` outlives this object.
    explicit CallReader(const ReplyFormat& format);

    void push(std::string_view text, ReplyEvents& events);
    /// Once, at the end of the answer.
    void finish(ReplyEvents& events);
    /// Bytes at the end of what was read that may be text, and are none yet.
    [[nodiscard]] std::size_t held_bytes() const { return space_.size() + held_.size(); }

private:
    enum class State : std::uint8_t {
        Start,  // nothing but blanks so far
        Text,
        Marker,  // part of a tag that opens calls
        Lead,    // behind it
        Item,    // an object of a list begins
        Object,
        Xml,
        After,    // behind an object
        Closing,  // part of the tag that closes
        Name,
        NameTag,  // part of [ARGS] or [CALL_ID]
        CallId,
        Arguments,
    };

    void run(ReplyEvents& events);
    void step(char c, ReplyEvents& events);
    void text(char c, ReplyEvents& events);
    void marker(ReplyEvents& events);
    void lead(char c, ReplyEvents& events);
    void object(char c, ReplyEvents& events);
    void xml(char c, ReplyEvents& events);
    void after(char c);
    void closing();
    void name(char c, ReplyEvents& events);
    void name_tag(char c);
    [[nodiscard]] bool opens_with(std::string_view text, bool whole) const;
    void begin_object(ReplyEvents& events, char c);
    void call_begun();
    void end_call(ReplyEvents& events);
    void emit(std::string_view text, ReplyEvents& events);
    void give_up(ReplyEvents& events);
    void read_again_as_text();

    const ReplyFormat& format_;
    const ToolSyntax& syntax_;
    State state_;
    bool at_start_ = true;  // no text, no call
    bool bare_ = false;     // the call that is read has no tag
    bool list_ = false;
    std::string space_ = {};  // blanks that what follows decides about
    std::string held_ = {};   // what is text if it is no call
    std::string name_ = {};
    std::string tag_ = {};
    CallObject call_ = {};
    XmlCall xml_ = {};
    bool has_text_ = false;
    bool after_call_ = false;  // and no text since
    std::string todo_ = {};    // bytes to read, from at_ on
    std::size_t at_ = 0;
};

}  // namespace paceline::serve
