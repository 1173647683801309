// RunSession: a loaded model and the state shared by one or many answers.
//
// Owns the model, the generator and the records of what was answered. One thread.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/base/interrupt.hpp"
#include "launch/cli/run.hpp"
#include "launch/config/supervision_config.hpp"
#include "launch/load/load_model.hpp"
#include "launch/session/generator.hpp"
#include "launch/session/run_stats.hpp"
#include "model/tokenizer/chat_template.hpp"

namespace paceline {

/// The next prompt or chat message.
struct Turn {
    std::vector<TokenId> ids;           // the tokens that are not in the KV cache yet
    bool anew = false;                  // the conversation must be read from its begin
    std::string text;                   // the whole of it, as the chat template renders it
    std::vector<ChatMessage> messages;  // and as messages
};

class RunSession {
public:
    /// Opens the model, without packing anything. Errors: bad model, no or unknown chat
    /// template (unless --raw), bad sampling parameters; these two as BadArgument or Unsupported.
    static Result<RunSession> open(const RunOptions& options, const Environment& environment);

    /// A single prompt, or a chat's next message: what the template puts between the answer before
    /// and this message is among its ids. Errors: those of ChatTemplate::render().
    [[nodiscard]] Result<Turn> turn(const std::string& text) const;

    /// Whether the turn fits after what is there, with room for one token of answer.
    /// Errors: BadArgument with both numbers and what to do.
    [[nodiscard]] Status check_room(const Turn& turn) const;

    /// Packs the weights or starts the pipeline `written`: the slow part. `log` must outlive the
    /// session.
    [[nodiscard]] Status load(const std::optional<PipelineConfig>& written,
                              const RunOptions& options,
                              const Environment& environment,
                              RunLog& log);

    /// Streams an answer to stdout, a newline at its end, and keeps its record.
    [[nodiscard]] Result<FinishReason> answer(const Turn& turn);

    /// The table of the last answer on stderr, for --figures; with --baseline the beginning of the
    /// answer is decoded again several times, by plain decoding and by the pipeline in turn.
    /// Errors: those of plain decoding; Protocol if the texts differ although the acceptance rule
    /// is exact, which is a bug.
    [[nodiscard]] Status print_stats(const RunOptions& options);

    /// The log probabilities of the last answer on standard output, for --logprobs.
    [[nodiscard]] Status print_scores() const;
    /// Forgets the conversation.
    void reset();
    /// The system prompt from now on; forgets the conversation, which begins with it.
    void set_system(std::string text);
    [[nodiscard]] const std::string& system() const { return system_; }

    [[nodiscard]] const ModelFile& file() const { return model_->file; }
    /// Whether its answers have a temperature.
    [[nodiscard]] bool draws() const { return !wanted_.request.sampling.greedy(); }
    [[nodiscard]] const std::optional<PipelineStats>& last_pipeline_stats() const {
        return records_.back().pipeline;
    }
    [[nodiscard]] Interrupt& interrupt() { return *interrupt_; }
    [[nodiscard]] const RunStats& last_stats() const { return records_.back().stats; }
    [[nodiscard]] std::size_t answers() const { return records_.size(); }
    [[nodiscard]] bool has_answers() const { return !records_.empty(); }
    [[nodiscard]] bool is_on_several_machines() const { return cluster_ != nullptr; }
    [[nodiscard]] int context() const { return context_; }
    /// Block types of the model that are not computed exactly (stored_types.hpp).
    void print_rounded_types() const;
    /// What of the folder's generation_config.json has no effect (sampling_options.hpp); empty:
    /// nothing.
    [[nodiscard]] std::string sampling_remark(const RunOptions& options) const;
    /// For --ids and --stats: the one answer, or a list of all in a chat.
    [[nodiscard]] std::string ids_json(bool chat) const;
    [[nodiscard]] std::string stats_json(bool chat) const;
    /// For --trace.
    [[nodiscard]] std::string trace_text() const { return generator_->trace_text(); }

private:
    struct Record {
        std::vector<TokenId> ids;
        RunStats stats;
        std::vector<TokenId> scored = {};  // whose scores these are: the prompt or the answer
        std::vector<TokenScores> scores = {};
        std::optional<PipelineStats> pipeline = {};
    };
    [[nodiscard]] Status meet_others(const RunOptions& options,
                                     const Environment& environment,
                                     const SupervisionConfig& supervision,
                                     RunLog& log);
    [[nodiscard]] Status compare_with_plain();
    [[nodiscard]] Result<double> rate_again(Generator& generator, std::size_t tokens) const;
    RunSession(OpenedModel model, const RunOptions& options);
    [[nodiscard]] std::vector<TokenId> raw_turn(const std::string& text) const;
    void remember(const Turn& turn, const Answer& answer);

    std::unique_ptr<OpenedModel> model_;  // at a fixed address: the generator points into it
    std::optional<ChatTemplate> chat_;    // nothing: --raw
    std::string system_;
    std::string tools_;                                    // JSON; empty: none
    TextRequest wanted_;                                   // of every answer, but for its tokens
    AcceptanceRule acceptance_ = AcceptanceRule::Coupled;  // of the pipeline, if there is one
    ModelOptions model_options_;
    int context_ = 0;
    double load_seconds_ = 0.0;
    RunLog* log_ = nullptr;  // after load()
    Show bars_ = Show::No;   // of the prefill, after load()
    std::unique_ptr<CancelToken> cancel_;
    std::unique_ptr<Interrupt> interrupt_;  // after load(): while loading Ctrl-C just kills
    std::unique_ptr<Cluster> cluster_;      // the other machines; outlives the stages there
    std::unique_ptr<Generator> generator_;
    std::vector<Record> records_;
    std::vector<ChatMessage> messages_;      // of the conversation, answers included
    std::optional<std::string> read_;        // the text in the KV cache; nothing: begin anew
    std::optional<TokenId> last_end_token_;  // behind it, where the model ended its answer
    std::optional<TokenId> last_token_;      // in the cache: that one, or the answer's last
};

}  // namespace paceline
