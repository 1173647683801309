// BlockForm: a response of one answer as blocks (thoughts, texts, calls), each opened, continued
// and closed: what /v1/responses and /v1/messages have in common.
//
//     piece -> ReplyTracker -> ReplyBlocks -> opened(), delta(), closed()   of the API at hand
//
// A class of an API writes these three, the beginning and the end. Where log probabilities are
// wanted, each token is a piece of its own: a text has those of its tokens. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "launch/api/answer_events.hpp"
#include "launch/api/answer_report.hpp"
#include "launch/api/prepare_answers.hpp"
#include "launch/api/response_form.hpp"
#include "launch/api/scores/text_scores.hpp"
#include "launch/api/tools/reply_blocks.hpp"
#include "launch/api/tools/reply_tracker.hpp"

namespace paceline::serve {

class BlockForm : public ResponseForm {
public:
    [[nodiscard]] std::string add(std::size_t choice, const AnswerPiece& piece) final;

protected:
    BlockForm(ResponseHead head, const PreparedAnswers& prepared);

    /// The events of a block of blocks().
    [[nodiscard]] virtual std::string opened(std::size_t block) = 0;
    [[nodiscard]] virtual std::string delta(std::size_t block, const std::string& text) = 0;
    [[nodiscard]] virtual std::string closed(std::size_t block) = 0;

    [[nodiscard]] const ResponseHead& head() const { return head_; }
    [[nodiscard]] const ReplyFormat& format() const { return format_; }
    [[nodiscard]] const ReplyBlocks& blocks() const { return blocks_; }
    [[nodiscard]] const AnswerReport& report() const { return report_; }
    /// Log probabilities of the text that delta() is given, and of that of a block so far: lists as
    /// chats have them, empty where they are not wanted.
    [[nodiscard]] const nlohmann::ordered_json& delta_scores() const { return delta_scores_; }
    [[nodiscard]] nlohmann::ordered_json block_scores(std::size_t block) const;
    /// None while the answer goes on.
    [[nodiscard]] FinishReason finish() const { return finish_; }
    /// A limit of tokens has ended the answer.
    [[nodiscard]] bool is_cut() const {
        return finish_ == FinishReason::MaxTokens || finish_ == FinishReason::ContextFull;
    }

private:
    [[nodiscard]] std::string read(const AnswerPiece& piece);
    [[nodiscard]] std::string events_of(const std::vector<BlockStep>& steps);
    [[nodiscard]] std::string event_of(const BlockStep& step);
    [[nodiscard]] bool is_text(const BlockStep& step) const;
    [[nodiscard]] bool push_scores(const AnswerPiece& token,
                                   const std::vector<BlockStep>& steps,
                                   bool thought,
                                   std::size_t held);
    void take_scores(const BlockStep& step);

    ResponseHead head_;
    ReplyFormat format_;
    bool stream_;
    ReplyTracker reply_;
    ReplyBlocks blocks_;
    AnswerReport report_;
    std::optional<TextScores> text_scores_;  // nothing: they are not wanted
    nlohmann::ordered_json delta_scores_ = nlohmann::ordered_json::array();
    std::vector<nlohmann::ordered_json> block_scores_;  // by block; may be shorter
    FinishReason finish_ = FinishReason::None;
};

}  // namespace paceline::serve
