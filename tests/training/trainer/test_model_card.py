"""The card's header is what the Hub reads: parsed by its own library."""

from huggingface_hub import ModelCard

from training.trainer.config import RunConfig
from training.trainer.model_card import with_model_index

CARD = "---\nlibrary_name: sentence-transformers\ntags: [sbert-lab]\n---\n# A model\n\nText --- with dashes.\n"
CONFIG = RunConfig("regression", eval_data="/home/somebody/secret/dev.csv")


def test_the_metrics_are_in_the_hubs_form():
    card = ModelCard(
        with_model_index(CARD, CONFIG, {"step": 8, "spearman": 0.8123456789}, "org/name")
    )
    [result] = card.data.eval_results
    assert (result.task_type, result.metric_type, result.metric_value) == (
        "semantic-similarity",
        "spearman_cosine",
        0.812346,
    )
    # no folder of the machine it was trained on
    assert (result.dataset_name, result.dataset_type) == (
        "dev.csv (chose the checkpoint)",
        "dev.csv",
    )
    assert card.data.model_name == "org/name" and card.data.library_name == "sentence-transformers"
    assert "Text --- with dashes." in card.text


def test_the_card_has_the_test_figure_beside_that_of_the_dev_data():
    config = RunConfig("regression")
    test = {"step": 8, "data": "stsb:test", "spearman": 0.75}
    card = ModelCard(with_model_index(CARD, config, {"spearman": 0.8}, "org/name", test))
    assert [(result.dataset_name, result.metric_value) for result in card.data.eval_results] == [
        ("stsb:dev (chose the checkpoint)", 0.8),
        ("stsb:test", 0.75),
    ]


def test_a_figure_is_added_once_also_to_a_card_without_a_header():
    once = with_model_index(CARD, CONFIG, {"spearman": 0.8}, "org/name")
    assert with_model_index(once, CONFIG, {"spearman": 0.9}, "org/other") == once
    assert with_model_index(CARD, CONFIG, {"loss": 0.1}, "org/name") == CARD
    assert (
        with_model_index(CARD, CONFIG.replace(eval_data=None), {"spearman": 0.8}, "org/name")
        == CARD
    )
    card = ModelCard(with_model_index("# A model\n", CONFIG, {"accuracy": 0.75}, "org/name"))
    assert card.data.eval_results[0].metric_type == "cosine_accuracy"
    assert card.text.strip() == "# A model"
