"""An explanation as a graph that ECharts draws: facts on the left, flowing into the entity whose state they made.

The options are plain data. ``contribution`` of a node is what it adds to the score, ``value`` where it stands; a key
that begins with a colon holds JavaScript (NiceGUI's convention), which here is always a constant: names reach the
browser as data only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refactorgnn.page.explanation_parts import LayerParts, Part

POSITIVE, NEGATIVE, NEUTRAL = "#1f6f8b", "#c4501b", "#8a96a3"
_INK, _ENTITY = "#1b2733", "#17324d"
_ROW = 34  # pixels for a part, and between them
_MARGIN = 30
_LABEL_WIDTH = 150
# Across: parts, states that were split, the entity.
_PARTS, _STATES, _ENTITIES = 0.0, 0.5, 1.0
_SHAPES = {"fact": "circle", "others": "circle", "rest": "diamond", "state": "roundRect", "features": "roundRect"}

Node = dict[str, Any]


def chart_height(layers: Sequence[LayerParts]) -> int:
    """How many pixels the chart needs."""
    return max(_ROW * sum(len(layer.parts) for layer in layers) + 2 * _MARGIN, 220)


def chart_options(layers: Sequence[LayerParts], entity: str, other: str, relation: str, score: float) -> dict[str, Any]:
    """ECharts options of one view of an explanation.

    Args:
        layers: The parts, from :func:`~refactorgnn.page.explanation_parts.view_of`.
        entity: The label of the entity whose state was split.
        other: The label at the other end of the triple.
        relation: The name of its relation.
        score: Its score.
    """
    nodes, links = _nodes_and_links(layers)
    middle = (chart_height(layers) - 2 * _MARGIN) / 2
    nodes += [
        _entity_node("entity", entity, middle, f"The state of {entity}, which all on the left made."),
        _entity_node("other", other, max(middle - 95.0, 0.0), f"The other end of what is explained: {other}."),
    ]
    links.append(
        {"source": "entity", "target": "other", "tip": f"{relation}: score {score:.3f}"}
        | {"lineStyle": {"type": "dashed", "width": 2, "color": _ENTITY, "curveness": 0}}
    )
    series = {
        "type": "graph",
        "coordinateSystem": "cartesian2d",  # its own would keep the shape of the drawing, on a narrow screen too
        "draggable": True,
        "roam": False,  # the wheel scrolls the page
        "cursor": "pointer",
        "data": nodes,
        "links": links,
        "label": {"show": True, "color": _INK, "fontSize": 12, ":formatter": "p => p.data.text"},
        "lineStyle": {"curveness": 0.12, "opacity": 0.75},
        "emphasis": {"focus": "adjacency", "label": {"fontWeight": "bold"}},
        "blur": {"itemStyle": {"opacity": 0.35}, "lineStyle": {"opacity": 0.2}, "label": {"opacity": 0.5}},
    }
    return {
        "animationDuration": 300,
        "textStyle": {"fontFamily": "Roboto, sans-serif"},
        "grid": {"left": _LABEL_WIDTH + 24, "right": 56, "top": _MARGIN, "bottom": _MARGIN},
        "xAxis": {"show": False, "type": "value", "min": _PARTS, "max": _ENTITIES},
        "yAxis": {"show": False, "type": "value", "min": 0, "max": 2 * middle, "inverse": True},
        "tooltip": {"renderMode": "richText", ":formatter": "p => p.data.tip || ''", "confine": True},
        "series": [series],
    }


def _nodes_and_links(layers: Sequence[LayerParts]) -> tuple[list[Node], list[Node]]:
    """A node for each part, one for each state that was split, and what flows from each to the next."""
    largest = max((abs(part.contribution) for layer in layers for part in layer.parts), default=0.0) or 1.0
    nodes: list[Node] = []
    links: list[Node] = []
    target, row = "entity", 0
    for place, layer in enumerate(layers):
        if layer.back > 1:  # the state before the layer above, split
            total = sum(deeper.contribution for deeper in layers[place:])
            state = f"state:{layer.back}"
            nodes.append(_split_node(state, total, _ROW * (row + (len(layer.parts) - 1) / 2)))
            links.append(_flow(state, target, total, largest))
            target = state
        for part in layer.parts:
            name = f"{layer.back}:{row}"
            nodes.append(_part_node(name, part, _ROW * row, largest))
            links.append(_flow(name, target, part.contribution, largest))
            row += 1
    return nodes, links


def _part_node(name: str, part: Part, y: float, largest: float) -> Node:
    return {
        "name": name,
        "text": part.label,
        "tip": f"{part.label}\n{part.contribution:+.3f} of the score\n{part.meaning}",
        "contribution": part.contribution,
        "role": part.role,
        "fact": part.fact,
        "value": [_PARTS, y],
        "symbol": _SHAPES[part.role],
        "symbolSize": 8 + 18 * (abs(part.contribution) / largest) ** 0.5,
        "itemStyle": {"color": _colour(part.contribution)},
        "label": {"position": "left", "distance": 8, "width": _LABEL_WIDTH, "overflow": "truncate", "align": "right"},
    }


def _split_node(name: str, total: float, y: float) -> Node:
    return {
        "name": name,
        "text": "",
        "tip": f"Earlier state, split into what made it\n{total:+.3f} of the score",
        "contribution": total,
        "role": "split",
        "value": [_STATES, y],
        "symbol": "roundRect",
        "symbolSize": 16,
        "itemStyle": {"color": _colour(total)},
    }


def _entity_node(name: str, label: str, y: float, tip: str) -> Node:
    is_entity = name == "entity"
    return {
        "name": name,
        "text": label,
        "tip": tip,
        "role": name,
        "value": [_ENTITIES, y],
        "symbolSize": 30 if is_entity else 22,
        "itemStyle": {"color": _ENTITY if is_entity else "#ffffff", "borderColor": _ENTITY, "borderWidth": 2},
        "label": {
            "position": "bottom" if is_entity else "top",
            "fontWeight": "bold",
            "width": 104,
            "overflow": "truncate",
        },
    }


def _flow(source: str, target: str, contribution: float, largest: float) -> Node:
    width = 1 + 7 * abs(contribution) / largest
    return {"source": source, "target": target, "contribution": contribution} | {
        "tip": f"{contribution:+.3f} of the score",
        "lineStyle": {"color": _colour(contribution), "width": width},
    }


def _colour(contribution: float) -> str:
    return POSITIVE if contribution > 0 else NEGATIVE if contribution < 0 else NEUTRAL
