//! The list of connections: `clients`.

use support::Client;
use support::session::Scene;

#[test]
fn clients_lists_more_connections_than_one_reply_has() {
    let scene = Scene::ours();
    let mut many: Vec<Client> = (0..250).map(|_| scene.connect()).collect();
    many.iter_mut()
        .for_each(|client| client.exchange("use many", "USING many"));
    for sort in ["", "--sort age"] {
        scene.tell(&format!("$ beanpole clients many {sort} | wc -l\n251"));
    }
}
