#include "launch/api/tools/reply_blocks.hpp"

#include <utility>

namespace paceline::serve {

void ReplyBlocks::open(BlockKind kind, std::vector<BlockStep>& steps) {
    if (open_ && kind != BlockKind::Call && blocks_.back().kind == kind) return;
    close(steps);
    steps.push_back({.kind = BlockStep::Kind::Open, .block = blocks_.size()});
    blocks_.push_back({.kind = kind});
    open_ = true;
}

void ReplyBlocks::close(std::vector<BlockStep>& steps) {
    if (!std::exchange(open_, false)) return;
    steps.push_back({.kind = BlockStep::Kind::Close, .block = blocks_.size() - 1});
}

std::vector<BlockStep> ReplyBlocks::add(const ReplyEvents& events) {
    std::vector<BlockStep> steps;
    const auto say = [&](const std::string& text) {
        blocks_.back().text += text;
        steps.push_back(
            {.kind = BlockStep::Kind::Delta, .block = blocks_.size() - 1, .text = text});
    };
    for (const ReplyEvent& event : events.all()) {
        switch (event.part) {
            case ReplyPart::Thought:
                open(BlockKind::Thought, steps);
                say(event.text);
                break;
            case ReplyPart::Text:
                open(BlockKind::Text, steps);
                say(event.text);
                break;
            case ReplyPart::CallBegin:
                open(BlockKind::Call, steps);
                blocks_.back().name = event.text;
                blocks_.back().call = calls_++;
                break;
            case ReplyPart::Arguments:
                say(event.text);
                break;
            case ReplyPart::CallEnd:
                // That of a cut answer comes with its end: finish() says whether it is complete.
                break;
        }
    }
    return steps;
}

std::vector<BlockStep> ReplyBlocks::finish(bool complete) {
    std::vector<BlockStep> steps;
    if (open_) blocks_.back().complete = complete;
    close(steps);
    return steps;
}

}  // namespace paceline::serve
