#include "launch/api/tools/block_form.hpp"

#include <algorithm>
#include <utility>

namespace paceline::serve {
namespace {

using Json = nlohmann::ordered_json;

/// `piece` as pieces of one token each, and what belongs to no token.
std::vector<AnswerPiece> tokens_of(const AnswerPiece& piece) {
    std::vector<AnswerPiece> tokens;
    std::size_t at = 0;
    for (std::size_t i = 0; i < piece.ids.size(); ++i) {
        const std::size_t bytes = piece.text_ends[i] - at;
        AnswerPiece token{.begin = piece.begin + i,
                          .ids = {piece.ids[i]},
                          .text_ends = {bytes},
                          .text = piece.text.substr(at, bytes)};
        if (i < piece.scores.size()) token.scores = {piece.scores[i]};
        tokens.push_back(std::move(token));
        at += bytes;
    }
    tokens.push_back({.begin = piece.begin + piece.ids.size(),
                      .text = piece.text.substr(at),
                      .over = piece.over});
    return tokens;
}

}  // namespace

BlockForm::BlockForm(ResponseHead head, const PreparedAnswers& prepared)
    : head_{std::move(head)},
      format_{prepared.reply},
      stream_{prepared.fields.stream},
      reply_{format_},
      report_{prepared.prompt_tokens, 1, prepared.seed, head_.method, head_.gamma} {
    if (prepared.tokenizer != nullptr) text_scores_.emplace(*prepared.tokenizer);
}

std::string BlockForm::add(std::size_t /*choice*/, const AnswerPiece& piece) {
    std::string events;
    if (text_scores_) {
        for (const AnswerPiece& token : tokens_of(piece)) events += read(token);
    } else {
        events = read(piece);
    }
    if (!piece.over) return events;
    report_.add(0, piece.stats);
    finish_ = piece.stats.finish;
    check_end(piece);
    if (!status()) return events;
    return events + events_of(blocks_.finish(!is_cut()));
}

std::string BlockForm::read(const AnswerPiece& piece) {
    const std::size_t held = reply_.held_bytes();
    const std::size_t before = reply_.thought_tokens();
    const std::vector<BlockStep> steps = blocks_.add(reply_.add(piece));
    const std::size_t thought = reply_.thought_tokens() - before;
    report_.add_tokens(piece.ids.size());
    report_.add_thought_tokens(thought);
    if (!text_scores_) return events_of(steps);
    const bool ends = push_scores(piece, steps, thought > 0, held);
    std::string events = events_of(steps);
    if (ends) text_scores_->drop();
    return events;
}

bool BlockForm::is_text(const BlockStep& step) const {
    return blocks_.all()[step.block].kind == BlockKind::Text;
}

/// What says something else than text ends what may have been text before it. The end of a block
/// says nothing: that of a call comes with the text behind it, to which blanks before it belong.
/// `held`: bytes before the token that may have been text. True: a text ends inside of the token.
bool BlockForm::push_scores(const AnswerPiece& token,
                            const std::vector<BlockStep>& steps,
                            bool thought,
                            std::size_t held) {
    std::size_t text = 0;  // bytes
    bool before = thought;
    bool behind = false;
    for (const BlockStep& step : steps) {
        if (is_text(step)) {
            if (step.kind == BlockStep::Kind::Delta) text += step.text.size();
        } else if (step.kind != BlockStep::Kind::Close) {
            (text > 0 ? behind : before) = true;
        }
    }
    if (before) text_scores_->drop();
    if (token.ids.empty() || (before && text == 0)) return behind;
    // What follows the text inside of the token is not counted as text.
    const std::size_t earlier = before ? 0 : std::min(text, held);
    text_scores_->push(token.ids.front(),
                       token.scores.empty() ? TokenScores{} : token.scores.front(),
                       behind ? text - earlier : token.text.size());
    return behind;
}

void BlockForm::take_scores(const BlockStep& step) {
    if (step.kind != BlockStep::Kind::Delta || !is_text(step)) return;
    delta_scores_ = text_scores_->take(step.text.size(), reply_.held_bytes());
    if (block_scores_.size() <= step.block) block_scores_.resize(step.block + 1, Json::array());
    Json& whole = block_scores_[step.block];
    whole.insert(whole.end(), delta_scores_.begin(), delta_scores_.end());
}

nlohmann::ordered_json BlockForm::block_scores(std::size_t block) const {
    return block < block_scores_.size() ? block_scores_[block] : Json::array();
}

/// Empty where nothing is streamed.
std::string BlockForm::events_of(const std::vector<BlockStep>& steps) {
    std::string events;
    for (const BlockStep& step : steps) {
        if (text_scores_) take_scores(step);
        if (stream_) events += event_of(step);
    }
    return events;
}

std::string BlockForm::event_of(const BlockStep& step) {
    switch (step.kind) {
        case BlockStep::Kind::Open:
            return opened(step.block);
        case BlockStep::Kind::Delta:
            return delta(step.block, step.text);
        default:
            return closed(step.block);
    }
}

}  // namespace paceline::serve
