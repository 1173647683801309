#include "launch/api/tools/reply_tracker.hpp"

#include <cstdint>
#include <string_view>

namespace paceline::serve {

void ReplyTracker::drop(ReplyEvents& events) {
    for (const ReplyEvent& event : events.all())
        skipped_calls_ += event.part == ReplyPart::CallBegin ? 1 : 0;
    events.clear();
}

ReplyEvents ReplyTracker::add(const AnswerPiece& piece) {
    ReplyEvents events;
    const std::string_view text = piece.text;
    std::size_t at = 0;
    const bool by_token = !format_.is_plain() || piece.begin < skipped_;
    for (std::size_t i = 0; by_token && i < piece.text_ends.size(); ++i) {
        const bool thought = reader_.thinks();
        reader_.push(text.substr(at, piece.text_ends[i] - at), events);
        at = piece.text_ends[i];
        if (thought || reader_.thinks()) ++thought_tokens_;
        if (piece.begin + i + 1 <= skipped_) drop(events);
    }
    reader_.push(text.substr(at), events);
    if (piece.over) {
        reader_.finish(events);
        // What belongs to no token was said at the end.
        if (skipped_ > piece.begin + piece.ids.size()) drop(events);
    }
    return events;
}

std::string call_id(const std::string& prefix,
                    const std::string& response,
                    std::size_t choice,
                    std::size_t index,
                    ToolFormat format) {
    constexpr std::string_view kDigits =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    constexpr std::size_t kBytes = 9;
    std::uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
    for (const char c : response + "." + std::to_string(choice) + "." + std::to_string(index)) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3U;
    }
    std::string digits;
    for (std::size_t i = 0; i < kBytes; ++i) {
        digits += kDigits[hash % kDigits.size()];
        hash /= kDigits.size();
    }
    if (format == ToolFormat::Mistral) return digits;
    return prefix + digits + std::to_string(index);
}

}  // namespace paceline::serve
