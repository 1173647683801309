// ExitAdapter: gives the adapter of a self-draft's exit (model/adapter_spec.hpp) every row that
// comes through the exit, so that its keys are those of the text. Used by SelfDraft.
//
//     drafted row   run()           after the exit's layers: its keys, and the state that the
//                                   adapter's head reads
//     batch row     run_to_exit()   that begins before the exit: prompts, tokens that no pass has
//                                   computed (the last one of a chain), rounds decoded plainly
//                   end_run()       the rows are again as the run has built them
//
// The keys lie in the rows' own KV slots. So a rejected candidate's are freed with its slot, an
// accepted one's stay, and a replay writes them with the prompt; nothing is copied or cut.
// Owns the memory of the adapter's outputs; borrows the backend. One job at a time: passes and
// batches of a segment never overlap. Threads: the job's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/backend.hpp"
#include "model/rows.hpp"

namespace paceline {

class ExitAdapter {
public:
    /// Preconditions: the backend has an adapter, and the layers [0, exit).
    ExitAdapter(Backend& backend, int exit);
    ExitAdapter(const ExitAdapter&) = delete;
    ExitAdapter& operator=(const ExitAdapter&) = delete;

    /// The adapter over rows whose hidden states after the exit are `hidden`, [rows, dim]. With
    /// Done, out() has its output.
    [[nodiscard]] RunOutcome run(std::span<const Row> rows,
                                 ConstHiddenRows hidden,
                                 const CancelToken* cancel);
    /// Of the last run(), [rows, dim]; valid until the next call.
    [[nodiscard]] ConstHiddenRows out() const { return out_; }

    /// Rows of a batch, with their hidden states in and out as in Backend::run_layers(). Those that
    /// begin before the exit are run as far as the exit, and the adapter gets them; they begin
    /// there now. What is left of the rows is then run as usual, and end_run() called.
    [[nodiscard]] RunOutcome run_to_exit(std::span<Row> rows,
                                         HiddenRows hidden,
                                         const CancelToken* cancel);
    /// Gives the rows of the last run_to_exit() their beginnings back.
    void end_run(std::span<Row> rows);

private:
    Backend& backend_;
    std::int32_t end_;  // sub-layers before the exit
    RowMemory adapted_;
    RowMemory gathered_;  // states of the rows of a batch that come through
    ConstHiddenRows out_;
    std::vector<Row> through_;
    std::vector<RowSource> states_;  // of these rows
    std::vector<std::int32_t> begun_;
};

}  // namespace paceline
