#include "actors/draft/work/model_passes.hpp"

#include <optional>
#include <utility>

#include "actors/protocol/counters.hpp"
#include "ipc/wire/cancel_board.hpp"

namespace paceline {
namespace {

constexpr Position kLagMax = 8;  // tokens that may be on their way from Draft
// Rows for each head of a pass that drafts: the tokens since the last pass, the root and a path.
constexpr std::size_t kRowsOfHead = 24;

}  // namespace

/// Whether text is read that no expansion asks for: by Correct, and in a single plain turn, such as
/// the first ones, of a prompt that the next turns would wait for. Not while speculation is off:
/// what was missed is read at the next probe.
bool ModelPasses::lags(const DraftRequest& request) const {
    const bool correct = !host_.account.off() && host_.plan.growth.part == GrowthPart::Alternatives;
    return (correct || host_.account.rests()) && request.uses_model() && !request.source.lent() &&
           host_.model()->cache().behind(*request.text) > kLagMax;
}

/// The rows of the next pass; nullptr: there are none.
std::shared_ptr<ModelPasses::Pass> ModelPasses::prepare() {
    while (true) {
        auto pass = std::make_shared<Pass>();
        std::vector<DraftExpansion> expansions;
        for (const RequestPtr& request : host_.requests.longest_waiting_first()) {
            RequestWaits& waits = request->waits;
            const bool asks = !waits.wanted.empty() && !waits.wants_source;
            if (!asks && !lags(*request)) continue;
            std::vector<DraftNodeId> expand;
            if (asks) expand.swap(waits.wanted);
            expansions.push_back({request->text, std::move(expand), host_.plan.growth.children()});
            pass->requests.push_back(request);
        }
        if (expansions.empty()) return nullptr;
        if (host_.model()->prepare(expansions)) return pass;
        // Nothing can be computed after those nodes, which are closed now: ask again.
        for (const RequestPtr& request : pass->requests) steps_.advance(request);
    }
}

bool ModelPasses::start() {
    if (host_.model() == nullptr) return false;
    std::shared_ptr<Pass> pass = prepare();
    if (pass == nullptr) return false;
    for (const RequestPtr& request : pass->requests) request->waits.in_pass = true;
    StageContext& context = *host_.context;
    pass->begun = context.now();
    running_ = pass;
    const DraftRequest& first = *pass->requests.front();
    host_.requests.served(first.id);
    if (pass->requests.size() == 1) {
        pass->cancel.watch(context.cancel_word(first.id),
                           CancelBoard::mark_of(first.id, first.attempt));
    }
    DraftModel& model = *host_.model();
    context.count(counters::kDraftForwards);
    const auto rows = static_cast<std::uint32_t>(model.pass().rows().size());
    pass->drafts = rows <= kRowsOfHead * model.pass().heads().size();
    context.count(counters::kDraftRows, rows);
    context.submit(
        {.name = "draft",
         .request = first.id,
         .id = static_cast<std::uint32_t>(first.text->tree.root().position),
         .rows = rows,
         .layers = model.layers(),
         .heads = static_cast<std::uint32_t>(model.pass().heads().size()),
         .context = model.pass().context()},
        [&model, pass] { return job_outcome(model.run(&pass->cancel)); },
        [this, pass](JobOutcome outcome) { end(*pass, run_outcome(outcome)); });
    return true;
}

void ModelPasses::end(Pass& pass, RunOutcome outcome) {
    running_.reset();
    skip_sets_.passed(host_.context->now() - pass.begun);
    const DraftPassResult taken = host_.model()->take(outcome);
    const auto took = static_cast<double>((host_.context->now() - pass.begun).count());
    std::optional<double> share;  // requests that share a pass share its cost
    if (outcome == RunOutcome::Done) share = took / static_cast<double>(pass.requests.size());
    for (const RequestPtr& request : pass.requests) {
        request->waits.in_pass = false;
        if (pass.drafts) request->worth.passed(share);
        if (!host_.requests.current(request)) continue;
        // Cancelled, and not by this actor: the conductor has cancelled the attempt.
        if (outcome == RunOutcome::Cancelled && !pass.given_up) {
            host_.stop(request->id);
            continue;
        }
        take(request, taken);
        steps_.advance(request);
    }
    host_.job_ended();
}

void ModelPasses::take(const RequestPtr& request, const DraftPassResult& taken) {
    bool grown = false;
    for (const NodeCandidates& found : taken.candidates) {
        if (found.text != request->text) continue;
        if (request->text->tree.find(found.node) == nullptr) continue;
        if (found.drawn) outlet_.send_draw(*request, found.node, *found.drawn);
        request->take(found);
        grown = true;
    }
    request->end_tentative(true);
    if (!grown) return;
    std::vector<DraftNodeId> computed;
    for (const ComputedNode& one : taken.computed) {
        if (one.text == request->text) computed.push_back(one.node);
    }
    request->growth.passed();
    outlet_.send_trunk(*request, computed);
}

void ModelPasses::cancel(const RequestPtr& request) {
    if (!running_ || running_->requests.size() != 1 || running_->requests.front() != request)
        return;
    running_->given_up = true;
    running_->cancel.cancel();
}

}  // namespace paceline
