#include "launch/api/tools/block_form.hpp"

#include <utility>

namespace paceline::serve {

BlockForm::BlockForm(ResponseHead head, const PreparedAnswers& prepared)
    : head_{std::move(head)},
      format_{prepared.reply},
      stream_{prepared.fields.stream},
      reply_{format_},
      report_{prepared.prompt_tokens, 1, prepared.seed, head_.method, head_.gamma} {}

std::string BlockForm::add(std::size_t /*choice*/, const AnswerPiece& piece) {
    const std::size_t thought = reply_.thought_tokens();
    std::string events = events_of(blocks_.add(reply_.add(piece)));
    report_.add_tokens(piece.ids.size());
    report_.add_thought_tokens(reply_.thought_tokens() - thought);
    if (!piece.over) return events;
    report_.add(0, piece.stats);
    finish_ = piece.stats.finish;
    check_end(piece);
    if (!status()) return events;
    return events + events_of(blocks_.finish(!is_cut()));
}

/// Empty where nothing is streamed.
std::string BlockForm::events_of(const std::vector<BlockStep>& steps) {
    std::string events;
    if (!stream_) return events;
    for (const BlockStep& step : steps) {
        switch (step.kind) {
            case BlockStep::Kind::Open:
                events += opened(step.block);
                break;
            case BlockStep::Kind::Delta:
                events += delta(step.block, step.text);
                break;
            case BlockStep::Kind::Close:
                events += closed(step.block);
        }
    }
    return events;
}

}  // namespace paceline::serve
