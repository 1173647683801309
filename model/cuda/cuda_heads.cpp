#include "model/cuda/cuda_heads.hpp"

#include <algorithm>

#include "ipc/base/check.hpp"
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

std::uint64_t CudaHeads::table_bytes(int rows) {
    return static_cast<std::uint64_t>(rows) * (sizeof(cuda::DrawRow) + 4) + 4;
}

std::uint64_t CudaHeads::staging_bytes(int rows) {
    return table_bytes(rows) + 4 + static_cast<std::uint64_t>(rows) * sizeof(cuda::CandidateList);
}

bool CudaHeads::make() {
    if (!cuda::PinnedMemory::allocate(staging_bytes(rows_max_), pinned_)) return false;
    table()[1 + rows_max_] = 0;  // stop() copies it, also before there was a head
    return true;
}

/// On the host: how many rows the head has, then which.
std::int32_t* CudaHeads::table() const {
    return pinned_.as<std::int32_t>(static_cast<std::size_t>(rows_max_) * sizeof(cuda::DrawRow));
}

/// With the draws that were written there. Not before the copy before it is done.
void CudaHeads::send_rows(std::span<const int> rows) {
    PACE_CHECK(rows.size() <= static_cast<std::size_t>(rows_max_), "rows of one head");
    std::int32_t* words = table();
    words[0] = static_cast<std::int32_t>(rows.size());
    std::copy(rows.begin(), rows.end(), words + 1);
    words[1 + rows_max_] = 0;
    group_.first().stream.to_device(group_.first().at.draws, pinned_.data(),
                                    table_bytes(rows_max_));
    // The others draw nothing: which rows is all that they need to know.
    for (const std::unique_ptr<CudaRank>& rank : group_.others())
        rank->stream.to_device(rank->at.head_rows, words,
                               4 * (1 + static_cast<std::size_t>(rows_max_)));
}

/// The head of a batch that was stopped has nothing to multiply either.
void CudaHeads::stop(CudaRank& rank) const {
    rank.urgent.to_device(rank.at.head_rows, table() + 1 + rows_max_, 4);
    rank.urgent.finish();
}

// ---- Logits

/// Logits of the `rows` hidden states that the table names, left on the first device.
void CudaHeads::launch(const CudaHead& head, int rows) {
    const bool norm_now = !head.turns || head.norm_first;
    group_.join();
    group_.fork();
    group_.on_each([&](CudaRank& rank) {
        const CudaHead& own = rank.weights->head(head.id);
        launches_.ready(rank, rank.at.head_rows + 1, rank.at.head_rows,
                        launches_.input_for(rank, norm_now ? own.norm : nullptr,
                                            own.turns ? own.transform : own.output),
                        rows);
    });
    group_.barrier();
    const auto taken = [rows](const CudaRank& rank) {
        return CudaTakenRows{rank.at.head_rows, rows};
    };
    const auto columns = [&](const CudaRank& rank, const cuda::DeviceMatrix& product) {
        return CudaExchange::Columns{padded_inputs(config_.dim), rank.weights->columns(),
                                     cuda::input_bytes(product.type)};
    };
    group_.on_each([&](CudaRank& rank) {
        const CudaHead& own = rank.weights->head(head.id);
        group_.take_input(rank, &CudaWorkspace::input,
                          columns(rank, own.turns ? own.transform : own.output), taken(rank), true);
    });
    if (head.turns) {
        group_.on_each([&](CudaRank& rank) {
            const CudaHead& own = rank.weights->head(head.id);
            own.block == HeadBlock::Residual ? block(rank, own, rows) : turn(rank, own, rows);
        });
        group_.barrier();
        group_.on_each([&](CudaRank& rank) {
            const CudaHead& own = rank.weights->head(head.id);
            const bool squares = own.block != HeadBlock::Residual && !own.norm_first;
            group_.take_input(rank, &CudaWorkspace::turned, columns(rank, own.output), taken(rank),
                              squares);
        });
    }
    group_.on_each([&](CudaRank& rank) { output(rank, rank.weights->head(head.id), rows); });
    group_.join();
    CudaRank& first = group_.first();
    const CudaHead& own = first.weights->head(head.id);
    const CudaShare share{own.share.first, own.output.outputs};
    group_.take(first, &CudaWorkspace::logits, {own.outputs, share, sizeof(float)}, taken(first));
}

/// A head's transform: this device's columns.
void CudaHeads::turn(CudaRank& rank, const CudaHead& head, int rows) {
    if (head.transform.outputs == 0) return;
    const int stride = padded_inputs(config_.dim);
    GemmArgs args = launches_.product(rank, head.transform, rank.at.input, stride, head.norm_first);
    args.rows = rank.at.head_rows;
    args.finish.kind = cuda::FinishKind::Input;
    // Squares that this product itself reads as its norm are not written meanwhile.
    args.finish.next = {head.norm_first ? nullptr : head.norm, rank.at.turned,
                        head.norm_first ? nullptr : rank.at.squares, stride,
                        cuda::takes_floats(head.output)};
    group_.share(rank, &CudaWorkspace::turned, rank.weights->columns().first, args.finish.next);
    cuda::launch_gemm(rank.stream, args, {rows, rank.info.processors, cuda::has_wgmma(rank.info)});
}

/// This device's logits, put where all of them are.
void CudaHeads::output(CudaRank& rank, const CudaHead& head, int rows) {
    if (head.output.outputs == 0) return;
    GemmArgs args =
        launches_.product(rank, head.output, head.turns ? rank.at.turned : rank.at.input,
                          padded_inputs(config_.dim), !head.turns || !head.norm_first);
    args.rows = rank.at.head_rows;
    float* logits =
        &rank == &group_.first() ? rank.at.logits : group_.gathered(&CudaWorkspace::logits);
    args.finish.out = logits + head.share.first;
    args.finish.out_stride = head.outputs;
    cuda::launch_gemm(rank.stream, args, {rows, rank.info.processors, cuda::has_wgmma(rank.info)});
}

/// A residual block: T n of the rows, whose norm is ready, then n + SiLU(T n) as the input of the
/// head's product; this device's columns.
void CudaHeads::block(CudaRank& rank, const CudaHead& head, int rows) {
    if (head.transform.outputs == 0) return;
    const auto first = static_cast<std::size_t>(rank.weights->columns().first);
    const int stride = padded_inputs(config_.dim);
    GemmArgs args = launches_.product(rank, head.transform, rank.at.input, stride, true);
    args.rows = rank.at.head_rows;
    args.finish.out = rank.at.block + first;
    args.finish.out_stride = config_.dim;
    cuda::launch_gemm(rank.stream, args, {rows, rank.info.processors, cuda::has_wgmma(rank.info)});
    cuda::AddSiluArgs add;
    add.hidden = rank.at.hidden + first;
    add.row_index = rank.at.head_rows + 1;
    add.rows = rank.at.head_rows;
    add.dim = config_.dim;
    add.columns = rank.weights->columns().count;
    add.weights = head.norm + first;
    add.norm = args.finish.norm;
    add.norm.factors = nullptr;  // written by products of many rows alone
    add.turned = args.finish.out;
    add.next = {nullptr, rank.at.turned, nullptr, stride, cuda::takes_floats(head.output)};
    group_.share(rank, &CudaWorkspace::turned, rank.weights->columns().first, add.next);
    cuda::launch_add_silu(rank.stream, add, rows);
}

// ---- Draws

/// The table is the draws, then the rows that they follow.
void CudaHeads::send_draws(const CudaDraws& draws, std::span<const int> rows) {
    auto* table = pinned_.as<cuda::DrawRow>();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const DrawJob& job = draws.jobs[static_cast<std::size_t>(rows[i])];
        table[i] = cuda::draw_row(*job.params, job.position, static_cast<int>(i));
    }
    send_rows(rows);
}

/// Head and draws by the table that was sent for these rows, and the copy of what was drawn.
void CudaHeads::launch_draws(const CudaDraws& draws, std::span<const int> rows) {
    const int count = static_cast<int>(rows.size());
    const cuda::DrawNeeds needs = cuda::needs_of(pinned_.as<cuda::DrawRow>(), count);
    int most = 1;
    for (const int row : rows)
        most = std::max(most, draws.jobs[static_cast<std::size_t>(row)].count);
    launch(*draws.head, count);
    cuda::DrawInput input;
    input.logits = group_.first().at.logits;
    input.stride = draws.head->outputs;
    input.vocab = config_.vocab_size;
    input.list = draws.head->list;
    input.rows = group_.first().at.draws;
    input.row_count = count;
    void* drawn = table() + 2 + rows_max_;
    if (draws.best.empty()) {
        cuda::launch_draw(group_.first().stream, input, needs, group_.first().at.draw_scratch,
                          group_.first().at.tokens);
        group_.first().stream.to_host(drawn, group_.first().at.tokens,
                                      rows.size() * sizeof(std::int32_t));
    } else {
        cuda::launch_candidates(group_.first().stream, input, needs, most,
                                group_.first().at.draw_scratch, group_.first().at.lists);
        group_.first().stream.to_host(drawn, group_.first().at.lists,
                                      rows.size() * sizeof(cuda::CandidateList));
    }
}

/// Once what was drawn after these rows is there.
void CudaHeads::take_drawn(const CudaDraws& draws, std::span<const int> rows) const {
    const std::int32_t* tokens = table() + 2 + rows_max_;
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

}  // namespace paceline
