// Draws a board with Grafana's components, from the Prometheus that `window.source` names. Grafana's panels are not
// packages: the functions here give the components what those panels give them.

import * as data from "@grafana/data";
import * as ui from "@grafana/ui";
import { TableNG } from "@grafana/ui/unstable";
import { useEffect, useState, type ReactNode } from "react";
import { createRoot } from "react-dom/client";
import { lastValueFrom } from "rxjs";
import "uplot/dist/uPlot.min.css";

declare const window: any;
const { board, source } = window;

const theme = data.createTheme({ colors: { mode: "dark" } });
// Grafana's grid: 24 columns, and lines of 30 pixels with 8 between them.
const [COLUMNS, LINE, GAP] = [24, 30, 8];
const WIDTH = source.width - 2 * GAP;
const range: data.TimeRange = {
  from: data.dateTime(source.start * 1000),
  to: data.dateTime(source.end * 1000),
  raw: { from: data.dateTime(source.start * 1000), to: data.dateTime(source.end * 1000) },
};

// Without these items the components ignore units, limits and thresholds.
const PROPERTIES = ["unit", "min", "max", "decimals", "thresholds", "mappings", "color", "displayName", "noValue"];
const CUSTOM = ["width", "minWidth", "align", "cellOptions"];
const item = (id: string, path: string, isCustom: boolean): any => ({
  id,
  path,
  name: id,
  isCustom,
  process: (value: any) => value,
  shouldApply: () => true,
});
data.standardFieldConfigEditorRegistry.setInit(() => [
  ...PROPERTIES.map((id) => item(id, id, false)),
  ...CUSTOM.map((id) => item(`custom.${id}`, id, true)),
]);
data.standardTransformersRegistry.setInit(() =>
  [data.standardTransformers.mergeTransformer, data.standardTransformers.organizeFieldsTransformer].map(
    (one): any => ({ id: one.id, name: one.name, transformation: async () => one, editor: () => null }),
  ),
);

// The defaults of the time series panel.
const SERIES = {
  drawStyle: "line",
  lineInterpolation: "linear",
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: "none",
  showPoints: "auto",
  pointSize: 5,
  spanNulls: false,
  axisPlacement: "auto",
  scaleDistribution: { type: "linear" },
  hideFrom: { legend: false, tooltip: false, viz: false },
};

async function ask(target: any): Promise<any[]> {
  const query = target.instant
    ? `query?time=${source.end}`
    : `query_range?start=${source.start}&end=${source.end}&step=${source.step}`;
  const answer = await fetch(`${source.url}/api/v1/${query}&query=${encodeURIComponent(target.expr)}`);
  const said = await answer.json();
  if (said.status !== "success") {
    throw new Error(`${target.expr}: ${said.error}`);
  }
  return said.data.result;
}

const time = (values: number[]) => ({ name: "Time", type: data.FieldType.time, values, config: {} });

// One frame for each series, as Prometheus' data source makes it.
function series(target: any, found: any[]): data.DataFrame[] {
  return found.map(({ metric, value, values }) => {
    const points: [number, string][] = values ?? [value];
    const at = new Map(points.map(([second, text]) => [second, Number(text)]));
    const seconds = value ? [value[0]] : steps();
    const name = target.legendFormat?.replace(/{{(\w+)}}/g, (_: string, label: string) => metric[label] ?? "");
    // Its panel of time series draws no NaN.
    const number = (value?: number) => (Number.isFinite(value) ? value : null);
    const numbers = seconds.map((second) => number(at.get(second)));
    return data.toDataFrame({
      refId: target.refId,
      fields: [
        time(seconds.map((second) => second * 1000)),
        { name: "Value", type: data.FieldType.number, values: numbers, labels: metric, config: { displayNameFromDS: name } },
      ],
    });
  });
}

function steps(): number[] {
  const count = Math.floor((source.end - source.start) / source.step) + 1;
  return Array.from({ length: count }, (_, index) => source.start + index * source.step);
}

// One frame for each query, with a column for each label.
function table(target: any, found: any[], isOnly: boolean): data.DataFrame {
  const labels = [...new Set(found.flatMap((one) => Object.keys(one.metric)))].sort();
  const column = (name: string) => found.map((one) => one.metric[name] ?? "");
  const value = isOnly ? "Value" : `Value #${target.refId}`;
  return data.toDataFrame({
    refId: target.refId,
    fields: [
      time(found.map((one) => one.value[0] * 1000)),
      ...labels.map((name) => ({ name, type: data.FieldType.string, values: column(name), config: {} })),
      { name: value, type: data.FieldType.number, values: found.map((one) => Number(one.value[1])), config: {} },
    ],
  });
}

async function frames(panel: any): Promise<data.DataFrame[]> {
  const parts = panel.targets.map(async (target: any) => {
    const found = await ask(target);
    return target.format === "table" ? [table(target, found, panel.targets.length === 1)] : series(target, found);
  });
  const all = (await Promise.all(parts)).flat();
  const changed = await lastValueFrom(data.transformDataFrame(panel.transformations ?? [], all));
  if (panel.type === "timeseries") {
    for (const field of changed.flatMap((frame) => frame.fields)) {
      field.config.custom = { ...SERIES, ...panel.fieldConfig.defaults.custom };
    }
  }
  const replaceVariables = (text: string) => text;
  const { fieldConfig } = panel;
  const named = data.applyFieldOverrides({ data: changed, fieldConfig, replaceVariables, theme, timeZone: "utc" });
  data.cacheFieldDisplayNames(named);
  return named;
}

type Drawn = { panel: any; found: data.DataFrame[]; width: number; height: number };

function Repeated({ panel, found, width, height, one }: Drawn & { one: (props: any) => ReactNode }) {
  const { options, fieldConfig } = panel;
  const getValues = () =>
    data.getFieldDisplayValues({
      data: found,
      reduceOptions: options.reduceOptions,
      fieldConfig,
      replaceVariables: (text) => text,
      theme,
      timeZone: "utc",
    });
  const Repeater: any = ui.VizRepeater;
  return (
    <Repeater
      {...{ width, height, getValues, source: found, renderCounter: 0, autoGrid: panel.type === "stat" }}
      {...{ minVizWidth: options.minVizWidth, minVizHeight: options.minVizHeight, maxVizHeight: options.maxVizHeight }}
      orientation={options.orientation}
      getAlignmentFactors={data.getDisplayValueAlignmentFactors}
      itemSpacing={panel.type === "stat" ? 3 : 10}
      renderValue={one}
    />
  );
}

const stat = (drawn: Drawn) => (
  <Repeated
    {...drawn}
    one={({ value, width, height, count, alignmentFactors }) => (
      <ui.BigValue
        {...{ value: value.display, width, height, count, alignmentFactors, theme }}
        colorMode={drawn.panel.options.colorMode}
        graphMode={drawn.panel.options.graphMode}
        textMode={drawn.panel.options.textMode}
        justifyMode={drawn.panel.options.justifyMode}
      />
    )}
  />
);

const bars = (drawn: Drawn) => (
  <Repeated
    {...drawn}
    one={({ value, width, height, orientation, alignmentFactors }) => (
      <ui.BarGauge
        {...{ value: value.display, field: value.field, width, height, orientation, alignmentFactors, theme }}
        display={value.view?.getFieldDisplayProcessor(value.colIndex)}
        displayMode={drawn.panel.options.displayMode}
        valueDisplayMode={drawn.panel.options.valueMode}
        namePlacement={drawn.panel.options.namePlacement}
        showUnfilled={drawn.panel.options.showUnfilled}
        itemSpacing={10}
      />
    )}
  />
);

const lines = ({ panel, found, width, height }: Drawn) => (
  <ui.TimeSeries frames={found} timeRange={range} timeZone="utc" legend={panel.options.legend} {...{ width, height }} />
);

const rows = ({ panel, found, width, height }: Drawn) => (
  <TableNG
    {...{ width, height, data: found[0], fieldConfig: panel.fieldConfig, timeRange: range }}
    sortBy={panel.options.sortBy}
    noHeader={!panel.options.showHeader}
    cellHeight={panel.options.cellHeight}
    enableVirtualization={false}
  />
);

const KINDS: Record<string, (drawn: Drawn) => ReactNode> = { stat, bargauge: bars, timeseries: lines, table: rows };

// Grafana's panels of values show `noValue` themselves; the others have it in place of the plot or table.
function content(drawn: Drawn): ReactNode {
  const isEmpty = drawn.found.every((frame) => frame.length === 0);
  if (isEmpty && ["timeseries", "table"].includes(drawn.panel.type)) {
    const center = { height: drawn.height, display: "flex", alignItems: "center", justifyContent: "center" };
    return <div style={center}>{drawn.panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  }
  return KINDS[drawn.panel.type](drawn);
}

function Panel({ panel, found }: { panel: any; found: data.DataFrame[] }) {
  const { x, y, w, h } = panel.gridPos;
  const cell = (WIDTH + GAP) / COLUMNS;
  const [width, height] = [w * cell - GAP, h * (LINE + GAP) - GAP];
  const place = { position: "absolute" as const, left: GAP + x * cell, top: y * (LINE + GAP), width, height };
  if (panel.type === "row") {
    return <h5 data-row={panel.title} style={{ ...place, margin: 0, lineHeight: `${LINE}px` }}>⌄ {panel.title}</h5>;
  }
  return (
    <section style={place} data-panel={panel.title} data-series={found.length}>
      <ui.PanelChrome title={panel.title} description={panel.description} {...{ width, height }}>
        {(width: number, height: number) => content({ panel, found, width, height })}
      </ui.PanelChrome>
    </section>
  );
}

function Board() {
  const [found, setFound] = useState<data.DataFrame[][]>();
  useEffect(() => {
    const all = board.panels.map((panel: any) => (panel.targets ? frames(panel) : []));
    // Plots are canvases, which do not wait for the letters.
    const fonts = ["400", "500"].map((weight) => document.fonts.load(`${weight} 12px Inter`));
    Promise.all(fonts)
      .then(() => Promise.all(all))
      .then(setFound, fail);
  }, []);
  if (!found) {
    return null;
  }
  return (
    <main data-drawn={board.title}>
      <h3 style={{ margin: `${GAP}px ${2 * GAP}px` }}>{board.title}</h3>
      <div style={{ position: "relative" }}>
        {board.panels.map((panel: any, index: number) => (
          <Panel key={panel.id} panel={panel} found={found[index]} />
        ))}
      </div>
    </main>
  );
}

function fail(error: any) {
  const said = document.createElement("pre");
  said.dataset.error = "";
  said.textContent = `${error?.stack ?? error}`;
  document.body.append(said);
}

window.addEventListener("error", (event: ErrorEvent) => fail(event.error ?? event.message));
window.addEventListener("unhandledrejection", (event: PromiseRejectionEvent) => fail(event.reason));
const root = createRoot(document.getElementById("board")!, { onUncaughtError: fail, onCaughtError: fail });
root.render(
  <data.ThemeContext.Provider value={theme}>
    <ui.GlobalStyles />
    <Board />
  </data.ThemeContext.Provider>,
);
