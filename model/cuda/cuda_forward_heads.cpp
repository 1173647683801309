// The heads of CudaForward: hidden states to logits, and to what is drawn from them.
//
// A head reads hidden states where they lie, by a table of its own: what is drawn, and from which
// rows. So it stands in the stream after the layers that make them, without a wait in between.
#include <algorithm>
#include <cstring>

#include "ipc/base/check.hpp"
#include "model/cuda/cuda_forward.hpp"
#include "model/kernels/cuda/sampling/sample_rows.hpp"

namespace paceline {

using cuda::GemmArgs;
using cuda::padded_inputs;

std::vector<int> CudaDraws::asked() const {
    std::vector<int> rows;
    for (std::size_t r = 0; r < jobs.size(); ++r) {
        if (jobs[r].params != nullptr) rows.push_back(static_cast<int>(r));
    }
    return rows;
}

// ---- The table: DrawRow[rows], how many, int[rows]; on the host then a zero and what was drawn

std::uint64_t CudaForward::head_table_bytes(int rows) {
    return static_cast<std::uint64_t>(rows) * (sizeof(cuda::DrawRow) + 4) + 4;
}

/// On the host: how many rows the head has, then which.
std::int32_t* CudaForward::head_table() const {
    return draw_pinned_.as<std::int32_t>(static_cast<std::size_t>(head_rows()) *
                                         sizeof(cuda::DrawRow));
}

/// With the draws that were written there. Not before the copy before it is done.
void CudaForward::send_head_rows(std::span<const int> rows) {
    PACE_CHECK(rows.size() <= static_cast<std::size_t>(head_rows()), "rows of one head");
    std::int32_t* table = head_table();
    table[0] = static_cast<std::int32_t>(rows.size());
    std::copy(rows.begin(), rows.end(), table + 1);
    table[1 + head_rows()] = 0;
    stream_.to_device(at_.draws, draw_pinned_.data(), head_table_bytes(head_rows()));
    // The others draw nothing: which rows is all that they need to know.
    for (const std::unique_ptr<CudaRank>& rank : ranks_.subspan(1))
        rank->stream.to_device(rank->at.head_rows, table,
                               4 * (1 + static_cast<std::size_t>(head_rows())));
}

/// The head of a batch that was stopped has nothing to multiply either.
void CudaForward::stop_head(CudaRank& rank) const {
    rank.urgent.to_device(rank.at.head_rows, head_table() + 1 + head_rows(), 4);
    rank.urgent.finish();
}

// ---- Logits

/// Logits of the `rows` hidden states that the table names, left on the first device.
void CudaForward::launch_head(const CudaHead& head, int rows) {
    const bool norm_now = !head.turns || head.norm_first;
    join();
    fork();
    on_each([&](CudaRank& rank) {
        const CudaHead& own = rank.weights->head(head.id);
        launch_ready(
            rank, rank.at.head_rows + 1, rank.at.head_rows,
            input_for(rank, norm_now ? own.norm : nullptr, own.turns ? own.transform : own.output),
            rows);
    });
    barrier();
    if (head.turns) {
        on_each([&](CudaRank& rank) {
            const CudaHead& own = rank.weights->head(head.id);
            own.block == HeadBlock::Residual ? launch_block(rank, own, rows)
                                             : launch_turn(rank, own, rows);
        });
        barrier();
    }
    on_each([&](CudaRank& rank) { launch_output(rank, rank.weights->head(head.id), rows); });
    join();
}

/// A head's transform: this device's columns.
void CudaForward::launch_turn(CudaRank& rank, const CudaHead& head, int rows) {
    if (head.transform.outputs == 0) return;
    const int stride = padded_inputs(config_.dim);
    GemmArgs turn = product(rank, head.transform, rank.at.input, stride, head.norm_first);
    turn.rows = rank.at.head_rows;
    turn.finish.kind = cuda::FinishKind::Input;
    // Squares that this product itself reads as its norm are not written meanwhile.
    turn.finish.next = {head.norm_first ? nullptr : head.norm, rank.at.turned,
                        head.norm_first ? nullptr : rank.at.squares, stride,
                        cuda::takes_floats(head.output)};
    share(rank, &CudaWorkspace::turned, rank.weights->columns().first, turn.finish.next);
    cuda::launch_gemm(rank.stream, turn, {rows, rank.info.processors, cuda::has_wgmma(rank.info)});
}

/// This device's logits, put where all of them are.
void CudaForward::launch_output(CudaRank& rank, const CudaHead& head, int rows) {
    if (head.output.outputs == 0) return;
    GemmArgs output = product(rank, head.output, head.turns ? rank.at.turned : rank.at.input,
                              padded_inputs(config_.dim), !head.turns || !head.norm_first);
    output.rows = rank.at.head_rows;
    output.finish.out = at_.logits + head.share.first;
    output.finish.out_stride = head.outputs;
    cuda::launch_gemm(rank.stream, output,
                      {rows, rank.info.processors, cuda::has_wgmma(rank.info)});
}

/// A residual block: T n of the rows, whose norm is ready, then n + SiLU(T n) as the input of the
/// head's product; this device's columns.
void CudaForward::launch_block(CudaRank& rank, const CudaHead& head, int rows) {
    if (head.transform.outputs == 0) return;
    const auto first = static_cast<std::size_t>(rank.weights->columns().first);
    const int stride = padded_inputs(config_.dim);
    GemmArgs turn = product(rank, head.transform, rank.at.input, stride, true);
    turn.rows = rank.at.head_rows;
    turn.finish.out = rank.at.block + first;
    turn.finish.out_stride = config_.dim;
    cuda::launch_gemm(rank.stream, turn, {rows, rank.info.processors, cuda::has_wgmma(rank.info)});
    cuda::AddSiluArgs add;
    add.hidden = rank.at.hidden + first;
    add.row_index = rank.at.head_rows + 1;
    add.rows = rank.at.head_rows;
    add.dim = config_.dim;
    add.columns = rank.weights->columns().count;
    add.weights = head.norm + first;
    add.norm = turn.finish.norm;
    add.norm.factors = nullptr;  // written by products of many rows alone
    add.turned = turn.finish.out;
    add.next = {nullptr, rank.at.turned, nullptr, stride, cuda::takes_floats(head.output)};
    share(rank, &CudaWorkspace::turned, rank.weights->columns().first, add.next);
    cuda::launch_add_silu(rank.stream, add, rows);
}

void CudaForward::head(const CudaHead& head, ConstHiddenRows hidden, int rows, float* logits) {
    const auto states = static_cast<std::size_t>(rows);
    give_hidden(hidden);
    send_head_rows(all_of(states));
    launch_head(head, rows);
    const std::size_t bytes = states * static_cast<std::size_t>(head.outputs) * sizeof(float);
    stream_.to_host(pinned_.data(), at_.logits, bytes);
    stream_.finish();
    std::memcpy(logits, pinned_.data(), bytes);
}

// ---- Draws

/// The table of these rows of at_.hidden and of what is drawn after them.
void CudaForward::send_draws(const CudaDraws& draws, std::span<const int> rows) {
    auto* table = draw_pinned_.as<cuda::DrawRow>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const DrawJob& job = draws.jobs[static_cast<std::size_t>(rows[i])];
        table[i] = cuda::draw_row(*job.params, job.position, static_cast<int>(i));
    }
    send_head_rows(rows);
}

/// Head and draws by the table that was sent for these rows, and the copy of what was drawn.
void CudaForward::launch_draws(const CudaDraws& draws, std::span<const int> rows) {
    const int count = static_cast<int>(rows.size());
    const cuda::DrawNeeds needs = cuda::needs_of(draw_pinned_.as<cuda::DrawRow>(), count);
    int most = 1;
    for (const int row : rows)
        most = std::max(most, draws.jobs[static_cast<std::size_t>(row)].count);
    launch_head(*draws.head, count);
    cuda::DrawInput input;
    input.logits = at_.logits;
    input.stride = draws.head->outputs;
    input.vocab = config_.vocab_size;
    input.list = draws.head->list;
    input.rows = at_.draws;
    input.row_count = count;
    void* drawn = head_table() + 2 + head_rows();
    if (draws.best.empty()) {
        cuda::launch_draw(stream_, input, needs, at_.draw_scratch, at_.tokens);
        stream_.to_host(drawn, at_.tokens, rows.size() * sizeof(std::int32_t));
    } else {
        cuda::launch_candidates(stream_, input, needs, most, at_.draw_scratch, at_.lists);
        stream_.to_host(drawn, at_.lists, rows.size() * sizeof(cuda::CandidateList));
    }
}

/// Once what was drawn after these rows is there.
void CudaForward::take_drawn(const CudaDraws& draws, std::span<const int> rows) const {
    const std::int32_t* tokens = head_table() + 2 + head_rows();
    const auto* lists = reinterpret_cast<const cuda::CandidateList*>(tokens);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto row = static_cast<std::size_t>(rows[i]);
        if (draws.best.empty()) {
            draws.tokens[row] = tokens[i] < 0 ? std::nullopt : std::optional<TokenId>{tokens[i]};
            continue;
        }
        std::vector<Candidate>& best = draws.best[row];
        best.clear();
        for (int c = 0; c < std::min(lists[i].count, draws.jobs[row].count); ++c)
            best.push_back({lists[i].tokens[c], lists[i].log_probs[c]});
    }
}

void CudaForward::draw(ConstHiddenRows hidden, const CudaDraws& draws) {
    const std::vector<int> rows = all_of(draws.jobs.size());
    give_hidden(hidden);
    send_draws(draws, rows);
    launch_draws(draws, rows);
    stream_.finish();
    take_drawn(draws, rows);
}

}  // namespace paceline
