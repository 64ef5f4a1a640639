"""Each loss against an independent truth: torch's own functions, or the formula in naive numpy."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import levelhead as lh
from levelhead_lab.methods import METHODS
from levelhead_lab.methods.class_balanced import effective_number
from levelhead_lab.methods.ldam import ldam_margins
from levelhead_lab.methods.method import ClassConstant, WeightedLoss

COUNTS = [5000, 2997, 83, 7]
LOSSES = list(
    {method.loss: name for name, method in reversed(METHODS.items())}.values()
)  # each once, by its first row
EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(32, 4, generator=draw, dtype=torch.float64)
    return logits, torch.randint(0, 4, (32,), generator=draw)


def softmax(row):
    """Probabilities of one row of logits, by the definition."""
    e = [np.exp(v - max(row)) for v in row]
    return [v / sum(e) for v in e]


def test_baseline_is_torch_cross_entropy_to_the_bit(batch):
    logits, labels = batch[0].float().requires_grad_(), batch[1]
    ours = METHODS["baseline"].loss(COUNTS)(logits, labels)
    theirs = F.cross_entropy(logits, labels, reduction="none")
    assert torch.equal(ours, theirs)
    (gradient,) = torch.autograd.grad(ours.mean(), logits, retain_graph=True)
    assert torch.equal(gradient, torch.autograd.grad(theirs.mean(), logits)[0])


def test_re_weighting_is_torch_cross_entropy_with_inverse_frequencies_of_mean_one(batch):
    inverse = torch.tensor([1 / n for n in COUNTS], dtype=torch.float64)
    theirs = F.cross_entropy(*batch, weight=inverse / inverse.mean(), reduction="none")
    torch.testing.assert_close(METHODS["re-weighting"].loss(COUNTS)(*batch), theirs, **EXACT)


def test_weights_of_a_batch_are_those_of_torch(batch):
    inverse = torch.tensor([1 / n for n in COUNTS], dtype=torch.float64)
    loss = replace(METHODS["re-weighting"].loss(COUNTS), in_batch=True)
    theirs = F.cross_entropy(*batch, weight=inverse)  # "mean": divided by the batch's total weight
    torch.testing.assert_close(loss(*batch).mean(), theirs, **EXACT)
    both = loss(
        *(torch.stack([x, x.flip(0)[:32]]) for x in batch)
    )  # each batch has weights of its own
    torch.testing.assert_close(both[0], loss(*batch), **EXACT)


@pytest.mark.parametrize("focus", [0.0, 0.5, 1.0, 2.0])
def test_focal_is_the_formula(batch, focus):
    p = [softmax(row)[y] for row, y in zip(batch[0].tolist(), batch[1].tolist(), strict=True)]
    theirs = [-((1 - q) ** focus) * np.log(q) for q in p]
    np.testing.assert_allclose(
        METHODS["focal"].loss(COUNTS, focus=focus)(*batch), theirs, rtol=1e-10
    )


def test_focal_of_two_classes_is_the_sigmoid_form_of_its_paper(batch):
    """Softmax over (0, z) is a sigmoid of z."""
    z, labels = batch[0][:, 0], batch[1] % 2
    ours = METHODS["focal"].loss(focus=2.0)(torch.stack([torch.zeros_like(z), z], 1), labels)
    probability = torch.where(labels == 1, z.sigmoid(), 1 - z.sigmoid())
    theirs = (1 - probability) ** 2 * F.binary_cross_entropy_with_logits(
        z, labels.double(), reduction="none"
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_focal_with_no_focus_is_cross_entropy(batch):
    ours = METHODS["focal"].loss(focus=0)(*batch)
    torch.testing.assert_close(ours, F.cross_entropy(*batch, reduction="none"), **EXACT)


def test_effective_number_is_the_geometric_sum():
    """E_n = 1 + beta + ... + beta^(n - 1): the n-th sample counts beta^(n - 1)."""
    by_hand = [sum(0.9999**k for k in range(n)) for n in COUNTS]
    np.testing.assert_allclose(effective_number(COUNTS, 0.9999), by_hand, rtol=1e-9)


@pytest.mark.parametrize("name", ["class-balanced", "class-balanced-focal"])
def test_class_balanced_weighs_its_loss_from_outside(batch, name):
    inverse = np.array([1 / sum(0.9999**k for k in range(n)) for n in COUNTS])
    weight = torch.from_numpy(inverse * 4 / inverse.sum())
    inner = F.cross_entropy(*batch, reduction="none")
    if name.endswith("focal"):
        inner = (1 - torch.exp(-inner)) * inner
    torch.testing.assert_close(
        METHODS[name].loss(COUNTS)(*batch), weight[batch[1]] * inner, rtol=1e-9, atol=1e-12
    )


def test_beta_of_zero_weighs_all_classes_alike_and_near_one_by_inverse_frequency(batch):
    def cb(beta):
        return METHODS["class-balanced"].loss(COUNTS, beta=beta)(*batch)

    torch.testing.assert_close(cb(0.0), METHODS["baseline"].loss(COUNTS)(*batch), **EXACT)
    torch.testing.assert_close(
        cb(1 - 1e-10), METHODS["re-weighting"].loss(COUNTS)(*batch), rtol=1e-5, atol=0
    )


def test_ldam_is_the_formula(batch):
    cosines, labels = batch[0].tanh(), batch[1]
    margin = np.array([n**-0.25 for n in COUNTS])
    margin *= 0.5 / margin.max()
    expected = []
    for row, y in zip(cosines.tolist(), labels.tolist(), strict=True):
        row[y] -= margin[y]
        expected.append(-np.log(softmax([30 * v for v in row])[y]))
    np.testing.assert_allclose(METHODS["ldam"].loss(COUNTS)(cosines, labels), expected, rtol=1e-10)


def test_ldam_margins_are_largest_for_the_rarest_class_wherever_it_stands():
    assert ldam_margins([16, 1, 256]).tolist() == [0.25, 0.5, 0.125]


def test_ldam_drw_is_ldam_until_its_stage_and_weighted_from_there_on(batch):
    cosines, labels = batch[0].tanh(), batch[1]
    plain = METHODS["ldam"].loss(COUNTS)(cosines, labels)
    weight = METHODS["class-balanced"].loss(COUNTS)(torch.zeros_like(cosines), labels) / np.log(4)
    deferred = METHODS["ldam-drw"].loss
    (start,) = METHODS["ldam-drw"].stages
    assert start == 160 / 200 == 144 / 180
    torch.testing.assert_close(deferred(COUNTS, 159 / 200)(cosines, labels), plain, **EXACT)
    torch.testing.assert_close(
        deferred(COUNTS, 160 / 200)(cosines, labels), weight * plain, **EXACT
    )


def test_balanced_softmax_is_the_ratio_of_count_weighted_exponentials(batch):
    scores = np.exp(batch[0].numpy()) * np.array(COUNTS)
    theirs = -np.log(scores[np.arange(32), batch[1]] / scores.sum(axis=1))
    np.testing.assert_allclose(METHODS["balanced-softmax"].loss(COUNTS)(*batch), theirs, rtol=1e-10)


def test_balanced_softmax_with_tau_zero_is_cross_entropy(batch):
    ours = METHODS["balanced-softmax"].loss(COUNTS, tau=0.0)(*batch)
    torch.testing.assert_close(ours, F.cross_entropy(*batch, reduction="none"), **EXACT)


@pytest.mark.parametrize("progress", [0.0, 0.9])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_passes_gradcheck(batch, name, progress):
    loss, labels = METHODS[name].loss(COUNTS, progress), batch[1][:8]
    assert torch.autograd.gradcheck(
        lambda x: loss(x, labels), batch[0][:8].clone().requires_grad_()
    )


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("focus", [None, 0.5])
def test_every_gradient_is_finite_however_sure_or_wrong_the_network_is(name, focus):
    knobs = {"focus": focus} if focus and "focal" in name else {}
    loss = METHODS[name].loss(COUNTS, 0.9, **knobs)
    for size in (0.0, 1e2, 1e4, 1e6):
        logits = (torch.eye(4) * size).requires_grad_()
        for labels in (torch.arange(4), torch.arange(4).roll(1)):
            values = loss(logits, labels)
            (gradient,) = torch.autograd.grad(values.sum(), logits)
            assert values.isfinite().all()
            assert gradient.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_logits_are_widened(batch, name):
    loss = METHODS[name].loss(COUNTS, 0.9)
    half = batch[0].bfloat16()
    values = loss(half, batch[1])
    assert values.dtype == torch.float32
    assert torch.equal(values, loss(half.float(), batch[1]))


@pytest.mark.parametrize("name", LOSSES)
def test_stacked_batches_give_the_values_of_each(batch, name):
    loss = METHODS[name].loss(COUNTS, 0.9)
    stacked = loss(batch[0].view(4, 8, 4), batch[1].view(4, 8))
    torch.testing.assert_close(stacked.flatten(), loss(*batch), **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOSSES)
def test_losses_compile_to_one_graph_cold_and_warm(batch, name):
    for warm in (False, True):
        torch._dynamo.reset()
        loss, logits = METHODS[name].loss(COUNTS, 0.9), batch[0].clone().requires_grad_()
        expected = METHODS[name].loss(COUNTS, 0.9)(*batch)
        if warm:
            loss(*batch)
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(logits, batch[1]), expected, **EXACT)


def test_constants_are_made_once_per_device_and_dtype():
    constant = ClassConstant(np.array([1.0, 2.0]))
    first = constant.like(torch.zeros(3, 2))
    assert constant.like(torch.ones(5, 2)) is first
    assert constant.like(torch.ones(5, 2, dtype=torch.bfloat16)) is first
    assert constant.like(torch.ones(5, 2, dtype=torch.float64)).dtype == torch.float64


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_first_used_in_inference_mode_still_trains(batch, name):
    loss = METHODS[name].loss(COUNTS, 0.9)
    with torch.inference_mode():
        loss(*batch)
    logits = batch[0].clone().requires_grad_()
    loss(logits, batch[1]).sum().backward()
    assert logits.grad is not None


@pytest.mark.parametrize("name", LOSSES)
def test_losses_can_be_pickled_and_copied_after_use(batch, name):
    loss = METHODS[name].loss(COUNTS, 0.9)
    expected = loss(*batch)
    for other in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):
        assert torch.equal(other(*batch), expected)


@pytest.mark.parametrize(
    "name", ["re-weighting", "class-balanced", "class-balanced-focal", "ldam", "balanced-softmax"]
)
def test_logits_of_another_number_of_classes_are_refused(batch, name):
    with pytest.raises(ValueError, match="logits: expected 5 classes, one per count, got 4"):
        METHODS[name].loss([*COUNTS, 3])(*batch)


@pytest.mark.parametrize(
    "name", ["re-weighting", "class-balanced", "class-balanced-focal", "ldam", "balanced-softmax"]
)
def test_a_class_with_no_samples_is_named(name):
    with pytest.raises(ValueError, match="class 1 has no samples"):
        METHODS[name].loss([10, 0, 3])


@pytest.mark.parametrize("label", [-100, -1, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_a_label_that_is_not_a_class_is_named(batch, name, label):
    logits, labels = batch[0].view(4, 8, 4), batch[1].view(4, 8).clone()
    labels[1, 2] = label
    with pytest.raises(
        ValueError, match=f"labels: expected classes from 0 to 3, got {label}; leave out samples"
    ):
        METHODS[name].loss(COUNTS, 0.9)(logits, labels)


def test_weights_never_enter_an_exponential(batch):
    """The copied bug: focal loss of an already weighted cross entropy. Ours must differ from it."""
    ours = METHODS["class-balanced-focal"].loss(COUNTS)
    assert isinstance(ours, WeightedLoss)
    weighted = METHODS["class-balanced"].loss(COUNTS)(*batch)
    assert not torch.allclose(ours(*batch), (1 - torch.exp(-weighted)) * weighted, rtol=1e-2)


@pytest.mark.parametrize(
    ("name", "knobs", "message"),
    [
        ("focal", {"focus": -1.0}, "focus: expected a number of at least 0, got -1.0"),
        ("class-balanced", {"beta": 1.0}, "beta: expected a number from 0 to below 1, got 1.0"),
    ],
)
def test_knobs_out_of_range_are_refused(name, knobs, message):
    with pytest.raises(ValueError, match=message):
        METHODS[name].loss(COUNTS, **knobs)


@pytest.mark.parametrize("name", ["class-balanced", "ldam"])
def test_counts_that_no_loss_can_use_are_refused(name):
    with pytest.raises(lh.LevelheadError, match="has no samples") as error:
        METHODS[name].loss([9, 3, 0])
    assert "missing=" not in str(error.value)  # a loss has no such argument
    with pytest.raises(lh.LevelheadError, match="class names are not known here"):
        METHODS[name].loss({"cat": 9, "dog": 3, "elk": 1})


@pytest.mark.parametrize(
    "name", ["baseline", "class-balanced", "ldam", "focal", "balanced-softmax"]
)
@pytest.mark.parametrize("shape", [(5,), (8, 1), (8, 4)], ids=["fewer", "a column", "one-hot"])
def test_losses_want_one_label_per_row(name, shape):
    loss = METHODS[name].loss(COUNTS)
    with pytest.raises(ValueError, match=r"labels: expected shape \[8\], one class index per row"):
        loss(torch.zeros(8, 4), torch.zeros(shape, dtype=torch.long))
