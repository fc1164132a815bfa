//! The view on a terminal: it reads the cluster every few seconds, and answers keys at once.

use std::time::Duration;

use croft_inspect::NodeState;
use croft_runtime::clock::{Clock as _, SystemClock};
use futures::StreamExt as _;
use ratatui::{
    Frame,
    crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Cell, Paragraph, Row, Table, TableState},
};

use super::{
    rows::{Rows, Sort},
    text,
};
use crate::{costs::cost_cell, failure::told};

const KEYS: &str =
    "Tab, 1-3 view   \u{2191}\u{2193} row   Enter its nodes   Esc back   s sort   / filter   q quit";
/// Rows of a page.
const PAGE: usize = 10;

/// Shows rows until the user quits. `read` is called every so often.
pub(super) async fn show(
    every: Duration,
    sort: Sort,
    read: impl AsyncFn() -> anyhow::Result<Rows>,
) -> anyhow::Result<()> {
    let mut terminal = ratatui::try_init()?;
    let result = async {
        let mut view = View::new(sort);
        let mut keys = EventStream::new();
        let mut reading = Box::pin(read());
        let mut is_reading = true;
        let mut next = Box::pin(tokio::time::sleep(every));
        loop {
            terminal.draw(|frame| view.draw(frame))?;
            tokio::select! {
                event = keys.next() => match event {
                    Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => {
                        if view.press(key) == Next::Quit {
                            return Ok(());
                        }
                    }
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(()),
                },
                rows = &mut reading, if is_reading => {
                    is_reading = false;
                    view.observe(rows);
                    next = Box::pin(tokio::time::sleep(every));
                }
                () = &mut next, if !is_reading => {
                    reading = Box::pin(read());
                    is_reading = true;
                }
            }
        }
    }
    .await;
    ratatui::try_restore()?;
    result
}

/// The effect of a key on the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Stay,
    Quit,
}

/// One of the three tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tenants,
    Pools,
    Nodes,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Tenants, Self::Pools, Self::Nodes];

    const fn title(self) -> &'static str {
        match self {
            Self::Tenants => "Tenants",
            Self::Pools => "Pools",
            Self::Nodes => "Nodes",
        }
    }
}

/// Nodes of one tenant or pool.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Scope {
    Tenant(String),
    Pool(String),
}

/// The user's choices, and the rows that were read last.
struct View {
    kind: Kind,
    sort: Sort,
    scope: Option<Scope>,
    filter: String,
    is_typing: bool,
    state: TableState,
    rows: Option<Rows>,
    read_at: String,
    error: Option<String>,
}

/// A row of a table: its name, and a text for each column.
struct Shown {
    name: String,
    cells: Vec<String>,
    is_waiting: bool,
}

impl View {
    fn new(sort: Sort) -> Self {
        Self {
            kind: Kind::Tenants,
            sort,
            scope: None,
            filter: String::new(),
            is_typing: false,
            state: TableState::default().with_selected(0),
            rows: None,
            read_at: String::new(),
            error: None,
        }
    }

    /// Takes in a read; after a failed one the last rows stay.
    fn observe(&mut self, read: anyhow::Result<Rows>) {
        match read {
            Ok(rows) => {
                self.rows = Some(rows);
                self.read_at = SystemClock.wall().strftime("%H:%M:%SZ").to_string();
                self.error = None;
                self.sort_rows();
            }
            Err(error) => self.error = Some(told(&error)),
        }
    }

    fn sort_rows(&mut self) {
        if let Some(rows) = &mut self.rows {
            rows.sort(self.sort);
        }
    }

    fn press(&mut self, key: KeyEvent) -> Next {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if is_control => return Next::Quit,
            KeyCode::Esc if self.is_typing => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Enter if self.is_typing => self.is_typing = false,
            KeyCode::Backspace if self.is_typing => {
                self.filter.pop();
            }
            KeyCode::Char(c) if self.is_typing => self.filter.push(c),
            KeyCode::Char('q') => return Next::Quit,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.sort_rows();
            }
            KeyCode::Char('1') => self.choose(Kind::Tenants),
            KeyCode::Char('2') => self.choose(Kind::Pools),
            KeyCode::Char('3') => self.choose(Kind::Nodes),
            KeyCode::Tab => self.choose(match self.kind {
                Kind::Tenants => Kind::Pools,
                Kind::Pools => Kind::Nodes,
                Kind::Nodes => Kind::Tenants,
            }),
            KeyCode::Esc => match self.scope.take() {
                Some(Scope::Tenant(_)) => self.choose(Kind::Tenants),
                Some(Scope::Pool(_)) => self.choose(Kind::Pools),
                None => self.filter.clear(),
            },
            KeyCode::Enter => self.open(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1, true),
            KeyCode::Up | KeyCode::Char('k') => self.step(1, false),
            KeyCode::PageDown => self.step(PAGE, true),
            KeyCode::PageUp => self.step(PAGE, false),
            KeyCode::Home => self.state.select(Some(0)),
            KeyCode::End => self.step(usize::MAX, true),
            _ => {}
        }
        Next::Stay
    }

    fn choose(&mut self, kind: Kind) {
        self.kind = kind;
        self.scope = None;
        self.state.select(Some(0));
    }

    /// Shows the nodes of the tenant or pool that is selected.
    fn open(&mut self) {
        let selected = self.state.selected().unwrap_or_default();
        let Some(name) = self.shown().into_iter().nth(selected).map(|row| row.name) else { return };
        let scope = match self.kind {
            Kind::Tenants => Scope::Tenant(name),
            Kind::Pools => Scope::Pool(name),
            Kind::Nodes => return,
        };
        self.choose(Kind::Nodes);
        self.filter.clear();
        self.scope = Some(scope);
    }

    fn step(&mut self, by: usize, is_down: bool) {
        let last = self.shown().len().saturating_sub(1);
        let at = self.state.selected().unwrap_or_default();
        let to = if is_down { at.saturating_add(by).min(last) } else { at.saturating_sub(by) };
        self.state.select(Some(to));
    }

    fn shown(&self) -> Vec<Shown> {
        let Some(rows) = &self.rows else { return Vec::new() };
        let mut shown = match self.kind {
            Kind::Tenants => tenants(rows),
            Kind::Pools => pools(rows),
            Kind::Nodes => nodes(rows, self.scope.as_ref()),
        };
        if !self.filter.is_empty() {
            shown.retain(|row| row.cells.iter().any(|cell| cell.contains(&self.filter)));
        }
        shown
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let [head, table, foot] =
            Layout::vertical([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)])
                .areas(frame.area());
        frame.render_widget(self.head(), head);
        self.draw_table(frame, table);
        let foot_text = if self.is_typing { format!("filter: {}_", self.filter) } else { KEYS.to_owned() };
        frame.render_widget(Paragraph::new(foot_text).style(Style::new().add_modifier(Modifier::DIM)), foot);
    }

    fn head(&self) -> Paragraph<'static> {
        let mut tabs: Vec<Span<'static>> = Vec::new();
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            let style = if kind == self.kind {
                Style::new().add_modifier(Modifier::BOLD | Modifier::REVERSED)
            } else {
                Style::new()
            };
            tabs.push(Span::styled(format!(" {} {} ", number + 1, kind.title()), style));
            tabs.push(Span::raw(" "));
        }
        match &self.scope {
            Some(Scope::Tenant(name)) => tabs.push(Span::raw(format!("of tenant {name} "))),
            Some(Scope::Pool(name)) => tabs.push(Span::raw(format!("of pool {name} "))),
            None => {}
        }
        if !self.filter.is_empty() {
            tabs.push(Span::raw(format!("with {:?} ", self.filter)));
        }
        tabs.push(Span::raw(format!("by {}", self.sort.as_str())));
        let state = match (&self.error, &self.rows) {
            (Some(error), _) => Line::styled(format!("not read: {error}"), Style::new().fg(Color::Red)),
            (None, None) => Line::raw("reading the cluster"),
            (None, Some(rows)) => Line::styled(
                format!("{}, at {}", text::sum(rows), self.read_at),
                Style::new().add_modifier(Modifier::BOLD),
            ),
        };
        Paragraph::new(vec![Line::from(tabs), state])
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let shown = self.shown();
        let last = shown.len().saturating_sub(1);
        self.state.select(Some(self.state.selected().unwrap_or_default().min(last)));
        let titles = titles(self.kind, self.rows.as_ref().is_some_and(Rows::has_templates));
        let width = |column: usize, title: &str| {
            let cells = shown.iter().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.chars().count()).fold(title.len(), usize::max)
        };
        let widths: Vec<Constraint> = titles
            .iter()
            .enumerate()
            .map(|(column, title)| Constraint::Max(u16::try_from(width(column, title)).unwrap_or(u16::MAX)))
            .collect();
        let rows: Vec<Row<'_>> = shown
            .iter()
            .map(|row| {
                let style = if row.is_waiting { Style::new().fg(Color::Yellow) } else { Style::new() };
                Row::new(row.cells.iter().map(|cell| Cell::from(cell.as_str()))).style(style)
            })
            .collect();
        let table = Table::new(rows, widths)
            .header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)))
            .column_spacing(2)
            .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
        frame.render_stateful_widget(table, area, &mut self.state);
    }
}

fn titles(kind: Kind, with_templates: bool) -> Vec<&'static str> {
    let template = |title: &'static str| if with_templates { vec![title] } else { Vec::new() };
    match kind {
        Kind::Tenants => vec!["TENANT", "POOLS", "NAMESPACES", "PODS", "PENDING", "NODES", "$/H", "READY"],
        Kind::Pools => [
            vec!["POOL", "TENANTS", "NODES"],
            template("TEMPLATES"),
            vec!["COMING", "PODS", "LIMITS", "$/H", "READY"],
        ]
        .concat(),
        Kind::Nodes => [
            vec!["NODE", "POOL"],
            template("TEMPLATE"),
            vec![
                "TYPE",
                "ZONE",
                "CAPACITY",
                "PODS",
                "CPU REQUESTED",
                "CPU USED",
                "MEMORY REQUESTED",
                "MEMORY USED",
                "$/H",
                "AGE",
                "STATE",
            ],
        ]
        .concat(),
    }
}

fn tenants(rows: &Rows) -> Vec<Shown> {
    let row = |row: &super::rows::TenantRow| Shown {
        name: row.name.clone(),
        is_waiting: row.pending > 0,
        cells: vec![
            row.name.clone(),
            row.pools.join(", "),
            row.namespaces.len().to_string(),
            row.pods.to_string(),
            row.pending.to_string(),
            row.nodes.to_string(),
            cost_cell(row.cost),
            row.ready.clone(),
        ],
    };
    rows.tenants.iter().map(row).collect()
}

fn pools(rows: &Rows) -> Vec<Shown> {
    let with_templates = rows.has_templates();
    let row = |row: &super::rows::PoolRow| {
        let mut cells = vec![row.name.clone(), row.tenants.join(", "), row.nodes.to_string()];
        cells.extend(with_templates.then(|| text::templates(&row.templates)));
        cells.extend([
            row.coming.to_string(),
            row.pods.to_string(),
            text::limits(&row.limits),
            cost_cell(row.cost),
            row.ready.clone(),
        ]);
        Shown { name: row.name.clone(), is_waiting: row.coming > 0, cells }
    };
    rows.pools.iter().map(row).collect()
}

fn nodes(rows: &Rows, scope: Option<&Scope>) -> Vec<Shown> {
    let is_in_scope = |row: &&super::rows::NodeRow| match scope {
        None => true,
        Some(Scope::Tenant(name)) => row.tenants.contains(name),
        Some(Scope::Pool(name)) => row.pool.as_ref() == Some(name),
    };
    let with_templates = rows.has_templates();
    let row = |row: &super::rows::NodeRow| Shown {
        name: row.name.clone(),
        is_waiting: row.state != NodeState::Ready,
        cells: text::node_cells(row, with_templates),
    };
    rows.nodes.iter().filter(is_in_scope).map(row).collect()
}

#[cfg(test)]
mod tests {
    use croft_inspect::inventory::Cost;
    use croft_scheduler::Price;
    use ratatui::{Terminal, backend::TestBackend};

    use super::{
        super::{
            fill::Fill,
            rows::{NodeRow, PoolRow, TenantRow},
        },
        *,
    };

    fn cost(dollars: &str) -> Cost {
        Cost { sum: dollars.parse::<Price>().unwrap(), ..Cost::default() }
    }

    fn rows() -> Rows {
        let tenant = |name: &str, pool: &str, pending, dollars| TenantRow {
            name: name.to_owned(),
            pools: vec![pool.to_owned()],
            namespaces: vec![name.to_owned()],
            pods: 3,
            pending,
            nodes: 1,
            cost: cost(dollars),
            ready: "True".to_owned(),
        };
        let pool = |name: &str, tenant: &str, dollars| PoolRow {
            name: name.to_owned(),
            tenants: vec![tenant.to_owned()],
            nodes: 1,
            coming: 0,
            pods: 3,
            templates: Vec::new(),
            limits: [("cpu".to_owned(), "100".to_owned())].into(),
            cost: cost(dollars),
            ready: "True".to_owned(),
            paused: None,
        };
        let node = |name: &str, pool: &str, tenant: &str, dollars| NodeRow {
            name: name.to_owned(),
            pool: Some(pool.to_owned()),
            template: None,
            tenants: vec![tenant.to_owned()],
            claim: None,
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity_type: "spot".to_owned(),
            pods: 3,
            cpu: Fill::default(),
            memory: Fill::default(),
            cost: cost(dollars),
            age_seconds: Some(60),
            state: NodeState::Ready,
        };
        Rows {
            tenants: vec![tenant("shop", "pool-a", 0, "0.1"), tenant("web", "pool-b", 2, "0.4")],
            pools: vec![pool("pool-a", "shop", "0.1"), pool("pool-b", "web", "0.4")],
            nodes: vec![node("node-1", "pool-a", "shop", "0.1"), node("node-2", "pool-b", "web", "0.4")],
            cost: cost("0.5"),
        }
    }

    /// The lines of the screen.
    fn screen(view: &mut View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(90, 7)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y: u16| -> String {
            (0..buffer.area.width).map(|x| buffer.cell((x, y)).unwrap().symbol()).collect()
        };
        (0..buffer.area.height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn press(view: &mut View, keys: &[KeyCode]) -> Next {
        keys.iter().fold(Next::Stay, |_, key| view.press(KeyEvent::new(*key, KeyModifiers::NONE)))
    }

    #[test]
    fn keys_choose_table_order_row_and_filter() {
        let mut view = View::new(Sort::Name);
        assert!(screen(&mut view)[1].contains("reading the cluster"));
        view.observe(Ok(rows()));
        let shown = screen(&mut view);
        assert!(shown[1].starts_with("2 of 2 nodes in pools, $0.5"), "{shown:#?}");
        assert!(shown[2].starts_with("TENANT  POOLS   NAMESPACES  PODS  PENDING  NODES"), "{shown:#?}");
        assert!(shown[3].starts_with("shop    pool-a") && shown[4].starts_with("web"), "{shown:#?}");

        // The most expensive first; its nodes, and back.
        press(&mut view, &[KeyCode::Char('s')]);
        assert!(screen(&mut view)[3].starts_with("web"));
        press(&mut view, &[KeyCode::Enter]);
        let shown = screen(&mut view);
        assert!(shown[0].contains("of tenant web") && shown[3].starts_with("node-2"), "{shown:#?}");
        assert_eq!(shown[4], "", "no other tenant's");
        press(&mut view, &[KeyCode::Esc]);
        assert!(screen(&mut view)[2].starts_with("TENANT"));

        // Letters belong to the filter while it is typed.
        press(&mut view, &[KeyCode::Char('2'), KeyCode::Char('/'), KeyCode::Char('s'), KeyCode::Char('h')]);
        let shown = screen(&mut view);
        assert!(shown[3].starts_with("pool-a") && shown[4].is_empty(), "{shown:#?}");
        assert_eq!(shown[6], "filter: sh_");
        press(&mut view, &[KeyCode::Enter, KeyCode::Down, KeyCode::PageDown, KeyCode::Down]);
        assert_eq!(view.state.selected(), Some(0), "there is one row");
        assert_eq!(press(&mut view, &[KeyCode::Char('q')]), Next::Quit);
    }

    #[test]
    fn a_failed_read_is_shown_beside_the_last_rows() {
        let mut view = View::new(Sort::Name);
        view.observe(Ok(rows()));
        view.observe(Err(anyhow::anyhow!("the API server is away")));
        let shown = screen(&mut view);
        assert!(shown[1].contains("not read: the API server is away") && shown[3].starts_with("shop"));
    }
}
